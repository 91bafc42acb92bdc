package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// players are everybody but the installer: controllers of DaemonSets, Deployments and claims, kubelets, discoveries and agents. They act
// whenever an object changes, as a whole: what is to be done follows from the objects and from how the test wants them to behave.
type players struct {
	admin client.Client
	cache cache.Cache
	end   func()

	mutex    sync.Mutex
	machines map[string]machine
	// drivers says how the driver of a node behaves; the zero value is well.
	drivers map[string]string
	// unproven are nodes whose validations fail.
	unproven map[string]bool
	// crash is the state in which a driver that fails is at the moment; nil is waiting.
	crash *corev1.ContainerState
	// history are the phases and steps of nodes, ready what the policy said about Ready, each change once.
	history map[string][]string
	ready   []string
	// prepared is the most claims that the agent on a node had when it was stopped.
	stopped map[string]int
	wakers  map[chan struct{}]bool
	// ills are what GPUs suffer from, out the most GPUs that were out of service at a time, wrong what an agent was told that it must not be.
	ills   []*illness
	out    int
	orders map[string]int
	wrong  []string
	// began is when this world did.
	began time.Time
	// begun and done are how often everybody began to act, and was done.
	begun, done int
	// owner makes pods of a user again, and schedules them; nil is nobody.
	owner func(context.Context, *scene) error
}

// How a driver behaves.
const (
	driverFails = "fails" // exits, again and again
	driverHangs = "hangs" // starts and is never ready
	driverLacks = "lacks" // its image does not exist
)

const labelSet = "players/set"

func newPlayers(t *testing.T, g *ground, admin client.Client) *players {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &players{
		admin: admin, machines: map[string]machine{}, drivers: map[string]string{}, unproven: map[string]bool{},
		history: map[string][]string{}, stopped: map[string]int{}, wakers: map[chan struct{}]bool{},
		orders: map[string]int{}, began: time.Now(),
	}
	var err error
	if p.cache, err = cache.New(g.config, cache.Options{Scheme: g.scheme}); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Node{}, &corev1.Pod{}, &corev1.Service{}, &appsv1.DaemonSet{}, &appsv1.Deployment{}, &resourceapi.ResourceClaim{}, &resourceapi.DeviceTaintRule{},
		&v1alpha1.GPUNode{}, &v1alpha1.ClusterPolicy{}, &v1alpha1.NVIDIADriver{}, &corev1.Event{},
	} {
		informer, err := p.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			t.Fatal(err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: p.notice, UpdateFunc: func(_, now any) { p.notice(now) }, DeleteFunc: func(any) { p.wake() },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var done sync.WaitGroup
	done.Go(func() { _ = p.cache.Start(ctx) })
	p.cache.WaitForCacheSync(ctx)
	wake, leave := p.listen()
	done.Go(func() {
		defer leave()
		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
				switch err := p.play(ctx); {
				case ctx.Err() != nil:
					return
				case late(err):
					p.wake()
				case err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
					t.Errorf("players: %v", err)
				}
			}
		}
	})
	p.end = func() { stop(); done.Wait() }
	return p
}

// late reports whether the API server had no time for an answer: kubelets and controllers, and so the players, ask again.
func late(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsTooManyRequests(err) || errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}

// listen returns a channel on which something stands after any change.
func (p *players) listen() (<-chan struct{}, func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	c := make(chan struct{}, 1)
	p.wakers[c] = true
	return c, func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		delete(p.wakers, c)
	}
}

func (p *players) wake() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for c := range p.wakers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// change changes how the world behaves.
func (p *players) change(do func(*players)) {
	p.mutex.Lock()
	do(p)
	p.mutex.Unlock()
	p.wake()
}

// notice remembers where nodes and the policy have been.
func (p *players) notice(object any) {
	p.mutex.Lock()
	switch o := object.(type) {
	case *v1alpha1.GPUNode:
		now := string(o.Status.Phase)
		if o.Status.Step != "" {
			now += "/" + string(o.Status.Step)
		}
		if list := p.history[o.Name]; now != "" && (len(list) == 0 || list[len(list)-1] != now) {
			p.history[o.Name] = append(list, now)
		}
		p.noticeOrders(o)
	case *v1alpha1.ClusterPolicy:
		for _, c := range o.Status.Conditions {
			if now := string(c.Status); c.Type == v1alpha1.ConditionReady && (len(p.ready) == 0 || p.ready[len(p.ready)-1] != now) {
				p.ready = append(p.ready, now)
			}
		}
	}
	p.mutex.Unlock()
	p.wake()
}

// scene is everything at one moment, kind by kind: one may be behind another.
type scene struct {
	nodes       corev1.NodeList
	pods        corev1.PodList
	sets        appsv1.DaemonSetList
	deployments appsv1.DeploymentList
	claims      resourceapi.ResourceClaimList
	gpunodes    v1alpha1.GPUNodeList
}

// count counts one more.
func (p *players) count(n *int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	*n++
}

// play has everybody act once.
func (p *players) play(ctx context.Context) error {
	p.count(&p.begun)
	defer p.count(&p.done)
	s := &scene{}
	for _, list := range []client.ObjectList{&s.nodes, &s.pods, &s.sets, &s.deployments, &s.claims, &s.gpunodes} {
		if err := p.cache.List(ctx, list); err != nil {
			return err
		}
	}
	for _, act := range []func(context.Context, *scene) error{
		p.playSets, p.playPods, p.playClaims, p.playDiscovery, p.playAgents, p.playStatus,
	} {
		if err := act(ctx, s); err != nil {
			return err
		}
	}
	p.mutex.Lock()
	owner := p.owner
	p.mutex.Unlock()
	if owner != nil {
		return owner(ctx, s)
	}
	return nil
}

// playSets is the controller of DaemonSets.
func (p *players) playSets(ctx context.Context, s *scene) error {
	kept := map[types.UID]bool{}
	for i := range s.sets.Items {
		set := &s.sets.Items[i]
		for j := range s.nodes.Items {
			node := &s.nodes.Items[j]
			pod := podOf(set, node.Name)
			if !chooses(pod, node) || set.DeletionTimestamp != nil {
				continue
			}
			at := slices.IndexFunc(s.pods.Items, func(have corev1.Pod) bool { return have.Name == pod.Name && have.Namespace == pod.Namespace })
			if at < 0 {
				pod.Spec.NodeName = node.Name
				if err := p.admin.Create(ctx, pod); client.IgnoreAlreadyExists(err) != nil {
					return err
				}
				continue
			}
			have := s.pods.Items[at]
			old := have.Annotations[labelSet] != pod.Annotations[labelSet]
			if have.Labels[labelSet] == set.Name && (!old || set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType) {
				kept[have.UID] = true
			}
		}
	}
	for i := range s.pods.Items {
		pod := &s.pods.Items[i]
		if pod.Labels[labelSet] != "" && !kept[pod.UID] {
			p.stopAgent(s, pod)
			if err := p.admin.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}

// stopAgent notes how many claims were prepared when an agent went.
func (p *players) stopAgent(s *scene, pod *corev1.Pod) {
	if pod.Labels["app.kubernetes.io/name"] != "tessera-node" {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.stopped[pod.Spec.NodeName] = max(p.stopped[pod.Spec.NodeName], int(prepared(s, pod.Spec.NodeName)))
}

// chooses reports whether a pod of a DaemonSet is to be on the node.
func chooses(pod *corev1.Pod, node *corev1.Node) bool {
	is, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && is
}

// podOf is the pod of a DaemonSet on a node, in what the installer looks at.
func podOf(set *appsv1.DaemonSet, node string) *corev1.Pod {
	template := set.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta}
	pod.Namespace, pod.Name = set.Namespace, set.Name+"-"+node
	pod.Labels = labels.Merge(pod.Labels, labels.Set{labelSet: set.Name})
	text, _ := json.Marshal(template)
	pod.Annotations = labels.Merge(pod.Annotations, labels.Set{labelSet: string(text)})
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: set.UID, Controller: new(true)}}
	pod.Spec.NodeSelector, pod.Spec.Affinity = template.Spec.NodeSelector, template.Spec.Affinity
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for _, c := range template.Spec.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	return pod
}

// playPods is kubelet on every node, and the scheduler for validations.
func (p *players) playPods(ctx context.Context, s *scene) error {
	for i := range s.pods.Items {
		pod := &s.pods.Items[i]
		if pod.DeletionTimestamp != nil {
			if err := p.admin.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
				return err
			}
			continue
		}
		if pod.Namespace != home {
			continue
		}
		want := p.podStatus(pod)
		if equality.Semantic.DeepDerivative(want, pod.Status) {
			continue
		}
		updated := pod.DeepCopy()
		updated.Status = want
		if err := p.admin.Status().Update(ctx, updated); err != nil {
			return err
		}
	}
	return nil
}

// podStatus is what becomes of a pod.
func (p *players) podStatus(pod *corev1.Pod) corev1.PodStatus {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	running := corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, Ready: true, Image: pod.Spec.Containers[0].Image}},
	}
	switch name := pod.Labels["app.kubernetes.io/name"]; name {
	case "tessera-validation":
		if p.unproven[pod.Labels["tessera.dev/node"]] {
			return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "validator", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "Test FAILED"}},
			}}}
		}
		return corev1.PodStatus{Phase: corev1.PodSucceeded}
	case "tessera-operation":
		return corev1.PodStatus{Phase: corev1.PodSucceeded}
	case "tessera-driver":
		container := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image}
		switch p.behaviour(pod) {
		case driverFails:
			container.RestartCount = 4
			container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
			if p.crash != nil {
				container.State = *p.crash
			}
			container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "modprobe: no such device"}
		case driverHangs:
			container.State.Running = &corev1.ContainerStateRunning{}
		case driverLacks:
			container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}
		default:
			return running
		}
		return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{container}}
	}
	return running
}

// behaviour is how the driver in a pod behaves: said of its node, or of its image.
func (p *players) behaviour(pod *corev1.Pod) string {
	image := pod.Spec.Containers[0].Image
	for key, how := range p.drivers {
		node, part, _ := strings.Cut(key, " ")
		if (node == "*" || node == pod.Spec.NodeName) && strings.Contains(image, part) {
			return how
		}
	}
	return ""
}

// live reads a pod from the API server; nil: it is gone. Caches are no ground to free what a pod holds, to accuse it, or to act in its place: that of pods may
// be behind others.
func (p *players) live(ctx context.Context, key types.NamespacedName, uid types.UID) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := p.admin.Get(ctx, key, pod); err != nil || pod.UID != uid {
		return nil, client.IgnoreNotFound(err)
	}
	return pod, nil
}

// playClaims is the controller of claims: a claim whose pods are gone is free.
func (p *players) playClaims(ctx context.Context, s *scene) error {
	for i := range s.claims.Items {
		claim := s.claims.Items[i].DeepCopy()
		var left []resourceapi.ResourceClaimConsumerReference
		for _, r := range claim.Status.ReservedFor {
			live := slices.ContainsFunc(s.pods.Items, func(pod corev1.Pod) bool { return pod.UID == r.UID })
			if !live {
				pod, err := p.live(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: r.Name}, r.UID)
				if err != nil {
					return err
				}
				live = pod != nil
			}
			if live {
				left = append(left, r)
			}
		}
		if len(left) == len(claim.Status.ReservedFor) {
			continue
		}
		claim.Status.ReservedFor = left
		if len(claim.Status.ReservedFor) == 0 {
			claim.Status.Allocation = nil
		}
		if err := p.admin.Status().Update(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// find returns the pod of an operand on a node.
func find(s *scene, node, operand string) *corev1.Pod {
	for i := range s.pods.Items {
		pod := &s.pods.Items[i]
		if pod.Spec.NodeName == node && pod.Labels["app.kubernetes.io/name"] == operand && pod.DeletionTimestamp == nil {
			return pod
		}
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// driverOn is the version of the driver that is loaded on a node.
func (p *players) driverOn(s *scene, m machine) string {
	if pod := find(s, m.name, "tessera-driver"); isReady(pod) {
		_, tag, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
		version, _, _ := strings.Cut(tag, "-")
		return version
	}
	return m.hostDriver
}

// playDiscovery is the discovery on every node.
func (p *players) playDiscovery(ctx context.Context, s *scene) error {
	for _, node := range s.nodes.Items {
		p.mutex.Lock()
		m, known := p.machines[node.Name]
		p.mutex.Unlock()
		pod := find(s, node.Name, "tessera-discovery")
		if !known || m.dark || !isReady(pod) {
			continue
		}
		at := slices.IndexFunc(s.gpunodes.Items, func(g v1alpha1.GPUNode) bool { return g.Name == node.Name })
		if at < 0 {
			if err := p.begin(ctx, pod, node.Name); err != nil {
				return err
			}
			continue
		}
		want := v1alpha1.HardwareStatus{
			BootID: node.Status.NodeInfo.BootID, GPUs: max(1, m.gpus), PCI: []string{"2330"}, Kernel: m.kernel, OS: m.os, Architecture: "amd64",
			HostDriver: m.hostDriver, LoadedDriver: p.driverOn(s, m), Runtime: "containerd://2.2.1", CDI: true,
		}
		if have := s.gpunodes.Items[at].Status.Hardware; have == nil || !equality.Semantic.DeepEqual(*have, want) {
			if err := p.speak(ctx, node.Name, "tessera-discovery", map[string]any{"hardware": want}); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin makes the GPUNode of a node, unless the discovery's pod is gone: the GPUNode is removed after it, and is not to come back.
func (p *players) begin(ctx context.Context, pod *corev1.Pod, node string) error {
	now, err := p.live(ctx, client.ObjectKeyFromObject(pod), pod.UID)
	if err != nil || now == nil {
		return err
	}
	return client.IgnoreAlreadyExists(p.admin.Create(ctx, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}))
}

// prepared is how many claims have devices of a node.
func prepared(s *scene, node string) int32 {
	var n int32
	for _, claim := range s.claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Pool == node+"-"+v1alpha1.DriverName && (r.AdminAccess == nil || !*r.AdminAccess) {
				n++
			}
		}
	}
	return n
}

// playAgents is the agent on every node.
func (p *players) playAgents(ctx context.Context, s *scene) error {
	for _, g := range s.gpunodes.Items {
		pod := find(s, g.Name, "tessera-node")
		p.mutex.Lock()
		m := p.machines[g.Name]
		p.mutex.Unlock()
		if !isReady(pod) {
			continue
		}
		want := v1alpha1.AgentStatus{
			Version: "v1", PodUID: string(pod.UID), BootID: m.bootID(), Accepted: true, DriverVersion: p.driverOn(s, m),
			GPUs: max(1, m.gpus), Product: "NVIDIA H100 80GB HBM3", Memory: 80 << 30, Architecture: "Hopper", ComputeCapability: "9.0",
		}
		if maintenance := g.Spec.Maintenance; maintenance != nil {
			want.Maintenance, want.Prepared = maintenance.ID, new(prepared(s, g.Name))
		}
		var err error
		if want.Faults, want.Remedies, err = p.health(ctx, s, &g, m); err != nil {
			return err
		}
		if g.Status.Agent == nil || !equality.Semantic.DeepEqual(*g.Status.Agent, want) {
			if err := p.speak(ctx, g.Name, "tessera-node", map[string]any{"agent": want}); err != nil {
				return err
			}
		}
	}
	return nil
}

// speak writes a part of a GPUNode's status as its owner does.
func (p *players) speak(ctx context.Context, name, manager string, status map[string]any) error {
	text, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": "GPUNode", "metadata": map[string]any{"name": name}, "status": status,
	})
	if err != nil {
		return err
	}
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return p.admin.Status().Patch(ctx, g, client.RawPatch(types.ApplyPatchType, text), client.FieldOwner(manager), client.ForceOwnership)
}

// discovered reports whether the discovery has told what the node is, or never will.
func (p *players) discovered(s *scene, node string) bool {
	p.mutex.Lock()
	m, known := p.machines[node]
	p.mutex.Unlock()
	return !known || m.dark || slices.ContainsFunc(s.gpunodes.Items, func(g v1alpha1.GPUNode) bool { return g.Name == node && g.Status.Hardware != nil })
}

// playStatus says that DaemonSets and Deployments have been seen, and where they run.
func (p *players) playStatus(ctx context.Context, s *scene) error {
	for i := range s.sets.Items {
		set := s.sets.Items[i].DeepCopy()
		want := appsv1.DaemonSetStatus{ObservedGeneration: set.Generation}
		for j := range s.nodes.Items {
			node := &s.nodes.Items[j]
			if !chooses(podOf(set, node.Name), node) {
				continue
			}
			want.DesiredNumberScheduled++
			if isReady(find(s, node.Name, set.Name)) && (set.Name != "tessera-discovery" || p.discovered(s, node.Name)) {
				want.NumberAvailable++
			}
		}
		if !equality.Semantic.DeepEqual(set.Status, want) {
			set.Status = want
			if err := p.admin.Status().Update(ctx, set); err != nil {
				return err
			}
		}
	}
	for i := range s.deployments.Items {
		if d := s.deployments.Items[i].DeepCopy(); d.Status.ObservedGeneration != d.Generation {
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
			if err := p.admin.Status().Update(ctx, d); err != nil {
				return err
			}
		}
	}
	return nil
}
