package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tessera-gpu/tessera/cmd/tessera/defrag"
)

// TestPlannedMoves carries out the plans of `tessera defrag plan` for pods that the scheduler has refused, in random states of a cluster: when the pods of the plan
// have left, the scheduler places the refused pod; and where that gets the devices of the plan, also those that replace the moved ones.
func TestPlannedMoves(t *testing.T) {
	machines := []string{"h100x2", "h100x1"}
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
	w := &walk{client: client, Rand: rand.New(rand.NewPCG(7, 19)), profile: loaded.Profiles[0], nodes: len(machines)}
	w.seen = schedule(t, untouched).informers
	outcomes := map[string]int{}
	for state := 0; state < 300 && !t.Failed(); state++ {
		for len(w.running) > 0 && w.IntN(100) < 40 {
			w.end(t)
		}
		name := fmt.Sprintf("m%03d", state)
		p := w.replaceable(t, name)
		w.launch(t, p)
		if p = w.settled(t, name); p.Spec.NodeName != "" {
			w.running = append(w.running, name)
			continue
		}
		w.caughtUp(t)
		plan, err := defrag.Simulate(t.Context(), w.client, w.profile, p, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		outcomes[fmt.Sprintf("%s %d", plan.Outcome, len(plan.Moves))]++
		if plan.Outcome != defrag.Movable {
			if plan.Outcome == defrag.Fits {
				t.Errorf("%s was refused (%s) and fits: %+v", describe(p), conditionOf(p), plan)
			}
			w.remove(t, name)
			continue
		}
		w.carryOut(t, p, plan, outcomes)
	}
	t.Logf("%v", outcomes)
	if outcomes["Movable 1"]+outcomes["Movable 2"] == 0 || outcomes["Impossible 0"] == 0 || outcomes["replaced"] == 0 {
		t.Errorf("something did not happen: %v", outcomes)
	}
	audit(t)
}

// replaceable returns a random pod of a controller, which requires one device, and creates its claim.
func (w *walk) replaceable(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	classes := []string{smallClass, smallClass, smallClass, smallClass, smallClass, "mig-2g.20gb.tessera.dev", largeClass, largeClass}
	mustCreate(t, claim(name, request(classes[w.IntN(len(classes))], 1)))
	p := pod(name, name)
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: "owner", Controller: new(true)}}
	return p
}

func (w *walk) launch(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if _, err := shared.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// carryOut moves the pods of the plan for a refused pod.
func (w *walk) carryOut(t *testing.T, refused *corev1.Pod, plan defrag.Plan, outcomes map[string]int) {
	t.Helper()
	var again []*resourceapi.ResourceClaim
	for _, m := range plan.Moves {
		_, name, _ := strings.Cut(m.Pods[0], "/")
		held, err := shared.Client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		again = append(again, claim(name+"r", held.Spec.Devices.Requests...))
		w.remove(t, name)
		w.running = slices.DeleteFunc(w.running, func(running string) bool { return running == name })
	}
	bound(t, len(w.running)+1)
	w.running = append(w.running, refused.Name)
	p, err := shared.Client.CoreV1().Pods(namespace).Get(t.Context(), refused.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asPlanned := p.Spec.NodeName == plan.Node && slices.Equal(sorted(devices(t, p)), sorted(plan.Devices))
	for _, c := range again {
		mustCreate(t, c)
		w.launch(t, pod(c.Name, c.Name))
		replaced := w.settled(t, c.Name)
		switch {
		case replaced.Spec.NodeName != "":
			outcomes["replaced"]++
			w.running = append(w.running, c.Name)
			continue
		case asPlanned && len(again) == 1:
			t.Errorf("%s is not placed again (%s) after %+v", describe(replaced), conditionOf(replaced), plan)
		default:
			outcomes["not replaced"]++
		}
		w.remove(t, c.Name)
	}
}
