package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tessera-gpu/tessera/cmd/tessera/explain"
)

// walk is a cluster that changes at random.
type walk struct {
	*rand.Rand
	profile schedulerconfig.KubeSchedulerProfile
	// seen is the state of the scheduler's caches.
	seen informers.SharedInformerFactory
	// client is the client of the explanation.
	client kubernetes.Interface
	// running are the names of the pods that are bound.
	running []string
	// nodes is how many nodes there are.
	nodes int
	// fitted and refused count pods by their outcome.
	fitted, refused int
}

// TestExplained compares `tessera explain` with the scheduler: in random states of the cluster it names the
// node and the devices that a random pod then gets, or reports that it fits nowhere.
func TestExplained(t *testing.T) {
	const states = 200
	machines := []string{"h100x2", "a100-40x2", "t4x1", "h100x2"}
	nodes(t, machines...)
	loaded, err := configuration()
	if err != nil {
		t.Fatal(err)
	}
	access, err := connection(shared.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{client: client, Rand: rand.New(rand.NewPCG(4, 200)), profile: loaded.Profiles[0], nodes: len(machines)}
	w.seen = schedule(t, untouched).informers
	for state := range states {
		for len(w.running) > 0 && w.IntN(100) < 40 {
			w.end(t)
		}
		w.step(t, fmt.Sprintf("p%03d", state))
		if t.Failed() {
			t.Fatalf("in state %d", state)
		}
	}
	t.Logf("%d pods fitted, %d were refused", w.fitted, w.refused)
	if min(w.fitted, w.refused) < states/10 {
		t.Errorf("%d pods fitted and %d did not: the walk needs more of both", w.fitted, w.refused)
	}
	audit(t)
	nothingAssumed(t)
}

// step explains a random pod, lets it go and compares.
func (w *walk) step(t *testing.T, name string) {
	t.Helper()
	w.caughtUp(t)
	gated := w.pod(t, name)
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test/explained"}}
	pods := shared.Client.CoreV1().Pods(namespace)
	p, err := pods.Create(t.Context(), gated, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	explained, err := explain.Simulate(t.Context(), w.client, w.profile, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	p = w.settled(t, name)
	if p.Spec.NodeName == "" {
		w.refused++
		if len(explained.Chosen) > 0 {
			t.Errorf("%s is refused (%s); explained was that it goes to %q", describe(p), conditionOf(p), explained.Chosen)
		}
		w.remove(t, name)
		return
	}
	w.fitted++
	w.running = append(w.running, name)
	if !slices.Contains(explained.Chosen, p.Spec.NodeName) {
		t.Errorf("%s runs on %s; explained was %q: %+v", describe(p), p.Spec.NodeName, explained.Chosen, explained)
		return
	}
	i := slices.IndexFunc(explained.Nodes, func(n explain.Node) bool { return n.Name == p.Spec.NodeName })
	if diff := cmp.Diff(sorted(explained.Nodes[i].Devices), sorted(devices(t, p))); diff != "" {
		t.Errorf("%s, devices on %s (-explained +allocated):\n%s", describe(p), p.Spec.NodeName, diff)
	}
}

// pod returns a random pod and creates its claim, if it has one.
func (w *walk) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	classes := []string{
		smallClass, "mig-2g.20gb.tessera.dev", largeClass, "mig-7g.80gb.tessera.dev", "mig-1g.5gb.tessera.dev", "mig-3g.20gb.tessera.dev",
		wholeClass, sharedClass, "mps.tessera.dev",
	}
	random := func() resourceapi.DeviceRequest { return request(classes[w.IntN(len(classes))], int64(1+w.IntN(10)/8)) }
	var p *corev1.Pod
	switch w.IntN(10) {
	case 0:
		p = wants(name, smallName)
	case 1:
		mustCreate(t, claim(name, request(wholeClass, int64(1+w.IntN(3)))))
		p = pod(name, name)
	case 2, 3:
		mustCreate(t, claim(name, random(), random()))
		p = pod(name, name)
	case 4:
		mustCreate(t, claim(name, random()), claim(name+"-b", random()))
		p = pod(name, name, name+"-b")
	default:
		mustCreate(t, claim(name, random()))
		p = pod(name, name)
	}
	if w.IntN(4) == 0 {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: fmt.Sprintf("node-%d", w.IntN(w.nodes))}
	}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(fmt.Sprintf("%d", w.IntN(4)))}
	return p
}

// settled waits until the pod is bound or refused.
func (w *walk) settled(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	eventually(t, func(ctx context.Context) error {
		var err error
		if p, err = shared.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && (c.Status == corev1.ConditionTrue || c.Reason == corev1.PodReasonUnschedulable) {
				return nil
			}
		}
		if p.Spec.NodeName == "" {
			return fmt.Errorf("pod %s is neither bound nor refused", name)
		}
		return nil
	})
	return p
}

// end ends a random pod.
func (w *walk) end(t *testing.T) {
	t.Helper()
	i := w.IntN(len(w.running))
	w.remove(t, w.running[i])
	w.running = slices.Delete(w.running, i, i+1)
}

// remove deletes the pod and its claims and waits until they are gone.
func (w *walk) remove(t *testing.T, name string) {
	t.Helper()
	pods, claims := shared.Client.CoreV1().Pods(namespace), shared.Client.ResourceV1().ResourceClaims(namespace)
	p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = pods.Delete(t.Context(), name, now)
	for _, c := range claimsOf(p) {
		// The controller may have been faster with the one for extended resources.
		if gone := claims.Delete(t.Context(), c, now); !apierrors.IsNotFound(gone) {
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		for _, c := range claimsOf(p) {
			if _, err := claims.Get(ctx, c, metav1.GetOptions{}); err == nil {
				return fmt.Errorf("claim %s is still there", c)
			}
		}
		return nil
	})
}

// caughtUp waits until the scheduler has seen the claims and pods that the API server has.
func (w *walk) caughtUp(t *testing.T) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		claims, err := shared.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := shared.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var there, seen []string
		for _, c := range claims.Items {
			there = append(there, c.Name+c.ResourceVersion)
		}
		for _, p := range pods.Items {
			there = append(there, p.Name+p.ResourceVersion)
		}
		for _, store := range []interface{ List() []any }{w.seen.Resource().V1().ResourceClaims().Informer().GetStore(), w.seen.Core().V1().Pods().Informer().GetStore()} {
			for _, object := range store.List() {
				if o, ok := object.(metav1.Object); ok {
					seen = append(seen, o.GetName()+o.GetResourceVersion())
				}
			}
		}
		if diff := cmp.Diff(sorted(there), sorted(seen)); diff != "" {
			return fmt.Errorf("the scheduler is behind:\n%s", diff)
		}
		return nil
	})
}

// devices returns the names of the devices of the pod's claims.
func devices(t *testing.T, p *corev1.Pod) []string {
	t.Helper()
	var names []string
	for _, name := range claimsOf(p) {
		c, err := shared.Client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Status.Allocation == nil {
			t.Fatalf("claim %s holds nothing", name)
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			names = append(names, r.Device)
		}
	}
	return names
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// describe returns the requests of the pod as text.
func describe(p *corev1.Pod) string {
	return fmt.Sprintf("pod %s (selector %v, claims %q, limits %v)", p.Name, p.Spec.NodeSelector, claimsOf(p), p.Spec.Containers[0].Resources.Limits)
}
