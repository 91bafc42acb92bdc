package lifecycle

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// simulator runs every component of the cluster except the API server and the installer: the controllers of
// DaemonSets, Deployments and ResourceClaims, a kubelet, a discovery and an agent per node.
//
// It is level-triggered. Any change of an object starts a pass; a pass lists all objects from a cache and lets
// each component write what the listed state requires. A test injects a fault by changing how a component
// behaves (configure), never by calling it.
//
// The mutex guards all fields below it. Passes run on one goroutine, one at a time; informer callbacks and
// tests run on others.
type simulator struct {
	admin client.Client
	cache cache.Cache
	// stop ends the informers and the passes, and returns when both have ended.
	stopSimulator func()

	mutex       sync.Mutex
	subscribers map[chan struct{}]bool
	// machines are the hardware of nodes, by name. A node without an entry is never discovered.
	machines map[string]machine
	// driverFaults are faults of driver containers, by "<node> <part of the image>"; the node may be *.
	driverFaults map[string]driverFault
	// reloadsDriver reports whether drivers reload the modules when they start, as NVIDIA's images before January 2026 and precompiled ones do.
	reloadsDriver bool
	// modules are the modules that driver containers have loaded, by node.
	modules map[string]driverModules
	// crashState is the container state of drivers with driverCrashes; nil is waiting in CrashLoopBackOff.
	crashState *corev1.ContainerState
	// failingValidations are nodes whose validation pods fail.
	failingValidations map[string]bool
	gpuFaults          []*gpuFault
	// userController runs at the end of every pass in place of a controller that recreates pods of users; nil is none.
	userController func(context.Context, *snapshot) error

	// started is when the simulator was created.
	started time.Time
	// phases are the phases of each GPUNode in order, "Upgrading/Drain" with a step; repetitions count once.
	phases map[string][]string
	// readyStatuses are the statuses of the policy's condition Ready in order; repetitions count once.
	readyStatuses []string
	// preparedAtStop is by node the largest number of claims that were prepared when an agent was stopped.
	preparedAtStop map[string]int
	// heldGPUs is by node the number of GPUs out of service for a remediation, maxHeldGPUs the largest sum over all nodes.
	heldGPUs    map[string]int
	maxHeldGPUs int
	// violations are orders to agents that must not occur.
	violations []string
	// passesBegun and passesDone count passes; they differ while one runs.
	passesBegun, passesDone int
}

// driverFault is how a driver container fails. The zero value is none.
type driverFault string

const (
	driverCrashes      driverFault = "crashes"       // it exits and is restarted
	driverHangs        driverFault = "hangs"         // it runs and never becomes ready
	driverImageMissing driverFault = "image missing" // its image cannot be pulled
)

// driverModules are the loaded modules of a driver container: its version, and the boot in which it loaded them.
type driverModules struct {
	version string
	boot    int
}

// newSimulator starts a simulator of the cluster behind g. An error of a component other than a conflict fails the test.
func newSimulator(t *testing.T, g *ground, admin client.Client) *simulator {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &simulator{
		admin: admin, subscribers: map[chan struct{}]bool{}, machines: map[string]machine{}, driverFaults: map[string]driverFault{},
		failingValidations: map[string]bool{}, started: time.Now(), phases: map[string][]string{}, preparedAtStop: map[string]int{},
		heldGPUs: map[string]int{}, modules: map[string]driverModules{},
	}
	var err error
	if s.cache, err = cache.New(g.config, cache.Options{Scheme: g.scheme}); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Node{}, &corev1.Pod{}, &corev1.Service{}, &appsv1.DaemonSet{}, &appsv1.Deployment{}, &resourceapi.ResourceClaim{}, &resourceapi.DeviceTaintRule{},
		&v1alpha1.GPUNode{}, &v1alpha1.ClusterPolicy{}, &v1alpha1.NVIDIADriver{}, &corev1.Event{},
	} {
		informer, err := s.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: s.observe, UpdateFunc: func(_, now any) { s.observe(now) }, DeleteFunc: func(any) { s.notify() },
		}); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	group.Go(func() { _ = s.cache.Start(ctx) })
	s.cache.WaitForCacheSync(ctx)
	changed, unsubscribe := s.subscribe()
	group.Go(func() {
		defer unsubscribe()
		s.run(ctx, t, changed)
	})
	s.stopSimulator = func() { cancel(); group.Wait() }
	return s
}

// run makes a pass after each change until ctx ends.
func (s *simulator) run(ctx context.Context, t *testing.T, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		switch err := s.pass(ctx); {
		case err == nil, ctx.Err() != nil:
		case isServerBusy(err):
			s.notify()
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			// The cache is behind. The event that corrects it starts the next pass.
		default:
			t.Errorf("simulator: %v", err)
		}
	}
}

// isServerBusy reports whether the API server could not answer a request, which any client repeats.
func isServerBusy(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsTooManyRequests(err) || errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}

// subscribe returns a channel that receives after any change of an object or of the configuration. Changes while
// one is pending are merged.
func (s *simulator) subscribe() (changed <-chan struct{}, unsubscribe func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	c := make(chan struct{}, 1)
	s.subscribers[c] = true
	return c, func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		delete(s.subscribers, c)
	}
}

// notify reports a change to all subscribers.
func (s *simulator) notify() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for c := range s.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// configure changes how components behave and starts a pass.
func (s *simulator) configure(change func(*simulator)) {
	s.mutex.Lock()
	change(s)
	s.mutex.Unlock()
	s.notify()
}

// observe appends an object's state to the history that tests assert. Informers call it for every version of
// an object that they receive, so a phase is recorded even if it ends before the next pass.
func (s *simulator) observe(object any) {
	s.mutex.Lock()
	switch o := object.(type) {
	case *v1alpha1.GPUNode:
		phase := string(o.Status.Phase)
		if o.Status.Step != "" {
			phase += "/" + string(o.Status.Step)
		}
		if phase != "" {
			s.phases[o.Name] = appendChange(s.phases[o.Name], phase)
		}
		s.observeRemedies(o)
	case *v1alpha1.ClusterPolicy:
		for _, c := range o.Status.Conditions {
			if c.Type == v1alpha1.ConditionReady {
				s.readyStatuses = appendChange(s.readyStatuses, string(c.Status))
			}
		}
	}
	s.mutex.Unlock()
	s.notify()
}

// appendChange appends value unless it is the last one already.
func appendChange(list []string, value string) []string {
	if len(list) > 0 && list[len(list)-1] == value {
		return list
	}
	return append(list, value)
}

// snapshot is the content of the cache at the start of a pass. Each kind has its own watch, so one kind may be
// newer than another.
type snapshot struct {
	nodes       corev1.NodeList
	pods        corev1.PodList
	sets        appsv1.DaemonSetList
	deployments appsv1.DeploymentList
	claims      resourceapi.ResourceClaimList
	gpunodes    v1alpha1.GPUNodeList
}

// pass lets every component act once on the same snapshot. It ends at the first error; the components are
// idempotent, so the next pass completes what is missing.
func (s *simulator) pass(ctx context.Context) error {
	s.increment(&s.passesBegun)
	defer s.increment(&s.passesDone)
	now := &snapshot{}
	for _, list := range []client.ObjectList{&now.nodes, &now.pods, &now.sets, &now.deployments, &now.claims, &now.gpunodes} {
		if err := s.cache.List(ctx, list); err != nil {
			return err
		}
	}
	components := []func(context.Context, *snapshot) error{
		s.syncDaemonSets, s.syncPods, s.syncClaims, s.syncDiscovery, s.syncAgents, s.syncStatuses,
	}
	s.mutex.Lock()
	if s.userController != nil {
		components = append(components, s.userController)
	}
	s.mutex.Unlock()
	for _, sync := range components {
		if err := sync(ctx, now); err != nil {
			return err
		}
	}
	return nil
}

func (s *simulator) increment(counter *int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	*counter++
}

// getLivePod reads a pod from the API server; nil if the pod of this UID is deleted. A component calls it before
// it acts on the absence of a pod, because the snapshot's pods may be older than its other objects: releasing the
// claim of a pod that the snapshot does not have yet would hand its GPU out twice.
func (s *simulator) getLivePod(ctx context.Context, key types.NamespacedName, uid types.UID) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := s.admin.Get(ctx, key, pod); err != nil || pod.UID != uid {
		return nil, client.IgnoreNotFound(err)
	}
	return pod, nil
}
