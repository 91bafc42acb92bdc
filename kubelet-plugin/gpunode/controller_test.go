package gpunode

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/internal/liveness"
	"github.com/tessera-gpu/tessera/kubelet-plugin/maintenance"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const (
	nodeName  = "node1"
	namespace = "tessera-system"
)

var (
	swap      = maintenance.Closure{ID: "1", Operation: "DriverSwap", Reason: "580.65.06 takes the place of 570.172.08"}
	users     = prepare.Ref{UID: "u", Namespace: "default", Name: "training"}
	validator = prepare.Ref{UID: "v", Namespace: namespace, Name: "tessera-validation-node1"}
)

func validating(c maintenance.Closure) maintenance.Closure {
	c.Validating = true
	return c
}

// enter enters the gate and fails the test if it is refused.
func enter(t *testing.T, g *maintenance.Gate, claim prepare.Ref) func() {
	t.Helper()
	leave, err := g.Enter(t.Context(), claim, nil)
	if err != nil {
		t.Fatalf("%v: %v", claim, err)
	}
	return leave
}

// cluster is an API server for one GPUNode.
type cluster struct {
	mu      sync.Mutex
	version int
	node    *v1alpha1.GPUNode
	watches []*watch.FakeWatcher
	// away is the error of every request while it is set.
	away error
	// silent is whether patches have no answer.
	silent bool
	// old makes the server drop a field, as an older CRD would.
	old            bool
	lists, patches int
}

func (c *cluster) List(_ context.Context, o metav1.ListOptions) (*v1alpha1.GPUNodeList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	if c.away != nil {
		return nil, c.away
	}
	list := &v1alpha1.GPUNodeList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.version)}}
	if c.node != nil && o.FieldSelector == "metadata.name="+nodeName {
		list.Items = append(list.Items, *c.node.DeepCopy())
	}
	return list, nil
}

func (c *cluster) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away != nil {
		return nil, c.away
	}
	w := watch.NewFakeWithChanSize(100, false)
	c.watches = append(c.watches, w)
	return w, nil
}

func (c *cluster) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*v1alpha1.GPUNode, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patches++
	switch {
	case c.silent:
		<-ctx.Done()
		return nil, ctx.Err()
	case c.away != nil:
		return nil, c.away
	case c.node == nil:
		return nil, missing
	case name != nodeName || kind != types.ApplyPatchType || o.FieldManager != Manager || len(sub) != 1 || sub[0] != "status":
		return nil, errors.New("not a server-side apply of the status")
	}
	var patch v1alpha1.GPUNode
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	if c.old {
		patch.Status.Agent.Product = ""
	}
	c.put(func(n *v1alpha1.GPUNode) { n.Status.Agent = patch.Status.Agent })
	return c.node.DeepCopy(), nil
}

var missing = apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "gpunodes"}, nodeName)

// put changes the node and notifies the watches. The caller holds the lock.
func (c *cluster) put(change func(*v1alpha1.GPUNode)) {
	c.version++
	kind := watch.Modified
	if c.node == nil {
		kind, c.node = watch.Added, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	}
	c.node = c.node.DeepCopy()
	c.node.ResourceVersion = strconv.Itoa(c.version)
	change(c.node)
	for _, w := range c.watches {
		if !w.IsStopped() {
			w.Action(kind, c.node.DeepCopy())
		}
	}
}

func (c *cluster) change(change func(*v1alpha1.GPUNode)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(change)
}

// goAway ends the watches and lets every request fail; nil ends that.
func (c *cluster) goAway(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = err
	for _, w := range c.watches {
		w.Stop()
	}
	c.watches = nil
}

func (c *cluster) remove() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	gone := c.node.DeepCopy()
	gone.ResourceVersion, c.node = strconv.Itoa(c.version), nil
	for _, w := range c.watches {
		w.Delete(gone)
	}
}

// agentStatus returns status.agent, and how often it was written.
func (c *cluster) agentStatus() (v1alpha1.AgentStatus, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil || c.node.Status.Agent == nil {
		return v1alpha1.AgentStatus{}, c.patches
	}
	return *c.node.Status.Agent, c.patches
}

// stage is a controller in a synctest bubble.
type stage struct {
	*cluster
	gate *maintenance.Gate
	stop func()

	state    sync.Mutex
	status   v1alpha1.AgentStatus
	prepared int
	closed   int
	// unread is whether the hardware has not been read yet.
	unread bool
	rounds liveness.Work
}

func (s *stage) set(f func()) {
	s.state.Lock()
	defer s.state.Unlock()
	f()
}

// run starts a controller over the folder, as a new process would.
func (s *stage) run(t *testing.T, dir string) {
	t.Helper()
	var err error
	if s.gate, err = maintenance.OpenGate(nil, dir, namespace, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	controller := New(Config{
		Node: nodeName, Client: s.cluster, Maintenance: s.enforcer(),
		Status: func(context.Context) v1alpha1.AgentStatus {
			s.state.Lock()
			defer s.state.Unlock()
			return s.status
		},
		Known: func() bool {
			s.state.Lock()
			defer s.state.Unlock()
			return !s.unread
		},
		Rounds: &s.rounds,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := controller.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	s.stop = func() {
		cancel()
		done.Wait()
	}
}

// enforcer returns an enforcer without resets.
func (s *stage) enforcer() *maintenance.Enforcer {
	return maintenance.NewEnforcer(maintenance.Config{
		Gate: s.gate,
		Prepared: func() (int, error) {
			s.state.Lock()
			defer s.state.Unlock()
			return s.prepared, nil
		},
		Closed: func() { s.set(func() { s.closed++ }) },
		Hold:   func(map[string]string) {},
		Taint:  func(string) {},
		Group:  func(string) []string { return nil },
	})
}

// perform runs the test in a bubble, with a GPUNode and a running controller.
func perform(t *testing.T, test func(t *testing.T, s *stage, dir string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{cluster: &cluster{}, status: v1alpha1.AgentStatus{Version: "v1", PodUID: "pod", BootID: "boot", GPUs: 2}}
		s.change(func(*v1alpha1.GPUNode) {})
		dir := t.TempDir()
		s.run(t, dir)
		pass(time.Second)
		test(t, s, dir)
		s.stop()
	})
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func maintain(c maintenance.Closure) func(*v1alpha1.GPUNode) {
	return func(n *v1alpha1.GPUNode) {
		n.Spec.Maintenance, n.Status.Step = nil, ""
		if c.ID != "" {
			n.Spec.Maintenance = &v1alpha1.Maintenance{ID: c.ID, Operation: v1alpha1.Operation(c.Operation), Reason: c.Reason}
		}
		if c.Validating {
			n.Status.Step = v1alpha1.StepValidate
		}
	}
}

// expectAck checks the maintenance in status.agent.
func (s *stage) expectAck(t *testing.T, when, id string, prepared int) {
	t.Helper()
	got, _ := s.agentStatus()
	var want v1alpha1.AgentStatus
	s.set(func() { want = s.status })
	if want.Maintenance = id; id != "" {
		want.PreparedClaims = new(int32(prepared))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// expectClosed checks how often Closed was called.
func (s *stage) expectClosed(t *testing.T, want int) {
	t.Helper()
	s.set(func() {
		if s.closed != want {
			t.Errorf("Closed called %d times, want %d", s.closed, want)
		}
	})
}

func TestStatusIsWrittenOnChange(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.expectAck(t, "at the start", "", 0)
		pass(time.Hour)
		s.change(func(n *v1alpha1.GPUNode) { n.Status.Phase = v1alpha1.PhaseReady })
		pass(time.Minute)
		_, writes := s.agentStatus()
		s.mu.Lock()
		lists := s.lists
		s.mu.Unlock()
		if writes != 1 || lists != 1 {
			t.Errorf("%d writes and %d lists in an hour, want one each", writes, lists)
		}
		s.set(func() { s.status.Ready = true })
		pass(time.Second)
		s.expectAck(t, "accepted", "", 0)
		s.change(func(n *v1alpha1.GPUNode) { n.Status.Agent = nil })
		pass(time.Second)
		s.expectAck(t, "after the status was removed", "", 0)
		if _, writes := s.agentStatus(); writes != 3 {
			t.Errorf("%d writes, want 3", writes)
		}
	})
}

// An agent that has not read the hardware keeps the reported faults, and reports the rest.
func TestFaultsStayUntilHardwareIsRead(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, dir string) {
		faults := []v1alpha1.GPUFault{{GPU: "gpu-a", Signal: "xid", XID: 79, Severity: "Fatal", Remedy: "Reset"}}
		s.set(func() { s.status.Faults = faults })
		pass(2 * time.Second)
		s.stop()
		s.set(func() { s.status.Faults, s.status.Version, s.unread = nil, "v2", true })
		s.run(t, dir)
		pass(time.Minute)
		status, _ := s.agentStatus()
		if diff := cmp.Diff(faults, status.Faults); diff != "" || status.Version != "v2" {
			t.Errorf("version %s, faults (-want +got):\n%s", status.Version, diff)
		}
		s.set(func() { s.unread = false })
		pass(2 * time.Second)
		if status, _ := s.agentStatus(); len(status.Faults) != 0 {
			t.Errorf("after the hardware was read: %+v", status.Faults)
		}
	})
}

func TestMaintenance(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		leave := enter(t, s.gate, users)
		s.set(func() { s.prepared = 2 })
		s.change(maintain(swap))
		pass(time.Minute)
		s.expectAck(t, "while a call is in progress", "", 0)
		s.expectClosed(t, 1)
		leave()
		pass(time.Second)
		s.expectAck(t, "after it ended", "1", 2)
		s.expectClosed(t, 2)
		s.set(func() { s.prepared = 0 })
		pass(time.Second)
		s.expectAck(t, "after all were released", "1", 0)

		s.change(maintain(validating(swap)))
		pass(time.Second)
		leave = enter(t, s.gate, validator)
		s.expectAck(t, "while it is validated", "1", 0)
		s.change(maintain(swap))
		pass(time.Second)
		s.expectAck(t, "the validation goes on after its step", "", 0)
		leave()
		pass(time.Second)
		s.expectAck(t, "the validation ended", "1", 0)

		next := swap
		next.ID = "2"
		s.change(maintain(next))
		pass(time.Second)
		s.expectAck(t, "another maintenance", "2", 0)
		s.change(maintain(maintenance.Closure{}))
		pass(time.Second)
		s.expectAck(t, "at the end", "", 0)
		enter(t, s.gate, users)()
	})
}

// A new process over the same folder, while the API server is unreachable.
func TestRestartWithoutAPIServer(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, dir string) {
		s.change(maintain(swap))
		pass(time.Second)
		s.goAway(errors.New("connection refused"))
		pass(time.Hour)
		s.stop()
		s.run(t, dir)
		if _, err := s.gate.Enter(t.Context(), users, nil); !errors.Is(err, prepare.ErrOutOfService) {
			t.Errorf("API server unreachable: %v", err)
		}
		s.goAway(nil)
		s.change(maintain(maintenance.Closure{}))
		pass(maxRetryDelay)
		enter(t, s.gate, users)()
	})
}

func TestWithoutGPUNode(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, dir string) {
		s.change(maintain(swap))
		pass(time.Second)
		s.remove()
		pass(time.Second)
		enter(t, s.gate, users)()
		s.stop()

		s.goAway(missing) // the CRD is not installed
		begun := time.Now()
		s.run(t, dir)
		enter(t, s.gate, users)()
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("waited %v without a CRD", waited)
		}
		_, before := s.agentStatus()
		pass(time.Hour)
		if _, writes := s.agentStatus(); writes != before {
			t.Errorf("written %d times", writes-before)
		}
		s.goAway(nil)
		s.change(maintain(swap))
		pass(maxRetryDelay + time.Second)
		s.expectAck(t, "after the CRD was installed", "1", 0)
	})
}

// A CRD that is older than the agent drops fields, which must not cause repeated writes.
func TestOlderCRDDropsFields(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.mu.Lock()
		s.old = true
		s.mu.Unlock()
		_, before := s.agentStatus()
		s.set(func() { s.status.Product = "NVIDIA H100" })
		pass(time.Hour)
		s.set(func() { s.status.GPUs = 1 })
		pass(time.Second)
		status, writes := s.agentStatus()
		if writes-before != 2 || status.GPUs != 1 {
			t.Errorf("written %d times, want twice: %+v", writes-before, status)
		}
		s.change(func(n *v1alpha1.GPUNode) { n.Status.Agent = nil })
		pass(time.Second)
		if status, writes := s.agentStatus(); writes-before != 3 || status.GPUs != 1 {
			t.Errorf("after the status was removed written %d times: %+v", writes-before, status)
		}
	})
}

func TestWritesBackOff(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		_, before := s.agentStatus()
		s.mu.Lock()
		s.away = apierrors.NewForbidden(schema.GroupResource{Resource: "gpunodes"}, nodeName, errors.New("no right"))
		s.mu.Unlock()
		s.set(func() { s.status.Ready = true })
		pass(time.Hour)
		if _, writes := s.agentStatus(); writes-before < 300 || writes-before > 400 {
			t.Errorf("tried %d times in an hour, want every %v", writes-before, maxRetryDelay)
		}
		s.goAway(nil)
		pass(2 * maxRetryDelay)
		s.expectAck(t, "after it was allowed", "", 0)
	})
}

// A write without an answer ends: the agent does not hang while the API server does.
func TestWriteWithoutAnswerEnds(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.change(func(*v1alpha1.GPUNode) { s.silent = true })
		s.set(func() { s.status.Version = "v2" })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s.rounds.Limit = requestTimeout / 2
		if s.rounds.Await(ctx) == nil {
			t.Error("the round is not watched")
		}
		s.rounds.Limit = 2 * requestTimeout
		if err := s.rounds.Await(ctx); err != nil {
			t.Error(err)
		}
	})
}
