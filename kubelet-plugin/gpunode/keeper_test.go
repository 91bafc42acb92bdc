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

	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const nodeName = "node1"

// cluster is an API server for one GPUNode.
type cluster struct {
	mu      sync.Mutex
	version int
	node    *v1alpha1.GPUNode
	watches []*watch.FakeWatcher
	// away is the answer to everything while it is set.
	away error
	// old has the server drop a field that it does not know.
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

func (c *cluster) Patch(_ context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*v1alpha1.GPUNode, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patches++
	switch {
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

// put changes the node and tells the watchers. The lock is held.
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

// goAway ends the watches and refuses everything; nil comes back.
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

// told returns what stands in status.agent, and how often it was written.
func (c *cluster) told() (v1alpha1.AgentStatus, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil || c.node.Status.Agent == nil {
		return v1alpha1.AgentStatus{}, c.patches
	}
	return *c.node.Status.Agent, c.patches
}

// stage is a keeper that runs in a bubble.
type stage struct {
	*cluster
	gate *Gate
	stop func()

	state    sync.Mutex
	facts    v1alpha1.AgentStatus
	prepared int
	closed   int
	// unread is whether the hardware has not been read yet.
	unread bool
	bench
}

func (s *stage) set(f func()) {
	s.state.Lock()
	defer s.state.Unlock()
	f()
}

// run starts a keeper over the folder, as a new process would.
func (s *stage) run(t *testing.T, dir string) {
	t.Helper()
	s.gate = gate(t, dir, true)
	keeper := New(Config{
		Node: nodeName, Client: s.cluster, Gate: s.gate,
		Facts: func(context.Context) v1alpha1.AgentStatus {
			s.state.Lock()
			defer s.state.Unlock()
			return s.facts
		},
		Known: func() bool {
			s.state.Lock()
			defer s.state.Unlock()
			return !s.unread
		},
		Prepared: func() (int, error) {
			s.state.Lock()
			defer s.state.Unlock()
			return s.prepared, nil
		},
		Closed:   func() { s.set(func() { s.closed++ }) },
		Remedies: s.remedies(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := keeper.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	s.stop = func() {
		cancel()
		done.Wait()
	}
}

// perform runs the test in a bubble, with a GPUNode and a running keeper.
func perform(t *testing.T, test func(t *testing.T, s *stage, dir string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{cluster: &cluster{}, facts: v1alpha1.AgentStatus{Version: "v1", PodUID: "pod", BootID: "boot", GPUs: 2}}
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

func maintain(c Closure) func(*v1alpha1.GPUNode) {
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

// acked checks what status.agent says of the maintenance.
func (s *stage) acked(t *testing.T, when, id string, prepared int) {
	t.Helper()
	got, _ := s.told()
	var want v1alpha1.AgentStatus
	s.set(func() { want = s.facts })
	if want.Maintenance = id; id != "" {
		want.Prepared = new(int32(prepared))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// calledBack checks how often it was asked to take back what is half prepared.
func (s *stage) calledBack(t *testing.T, want int) {
	t.Helper()
	s.set(func() {
		if s.closed != want {
			t.Errorf("asked %d times to take back what is half prepared, want %d", s.closed, want)
		}
	})
}

func TestToldWhenItChanges(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.acked(t, "at the start", "", 0)
		pass(time.Hour)
		s.change(func(n *v1alpha1.GPUNode) { n.Status.Phase = v1alpha1.PhaseReady })
		pass(time.Minute)
		_, writes := s.told()
		s.mu.Lock()
		lists := s.lists
		s.mu.Unlock()
		if writes != 1 || lists != 1 {
			t.Errorf("%d writes and %d lists in an hour, want one each", writes, lists)
		}
		s.set(func() { s.facts.Accepted = true })
		pass(time.Second)
		s.acked(t, "accepted", "", 0)
		s.change(func(n *v1alpha1.GPUNode) { n.Status.Agent = nil })
		pass(time.Second)
		s.acked(t, "after somebody took it away", "", 0)
		if _, writes := s.told(); writes != 3 {
			t.Errorf("%d writes, want 3", writes)
		}
	})
}

// An agent that has not read the hardware yet takes back nothing of what was told before, and tells the rest.
func TestFaultsOfANodeThatIsNotKnown(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, dir string) {
		faults := []v1alpha1.GPUFault{{GPU: "gpu-a", Signal: "xid", XID: 79, Severity: "Fatal", Remedy: "Reset"}}
		s.set(func() { s.facts.Faults = faults })
		pass(2 * time.Second)
		s.stop()
		s.set(func() { s.facts.Faults, s.facts.Version, s.unread = nil, "v2", true })
		s.run(t, dir)
		pass(time.Minute)
		told, _ := s.told()
		if diff := cmp.Diff(faults, told.Faults); diff != "" || told.Version != "v2" {
			t.Errorf("version %s, faults (-want +got):\n%s", told.Version, diff)
		}
		s.set(func() { s.unread = false })
		pass(2 * time.Second)
		if told, _ := s.told(); len(told.Faults) != 0 {
			t.Errorf("after the hardware was read: %+v", told.Faults)
		}
	})
}

func TestMaintenance(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		leave := enter(t, s.gate, users)
		s.set(func() { s.prepared = 2 })
		s.change(maintain(swap))
		pass(time.Minute)
		s.acked(t, "while a call is on its way", "", 0)
		s.calledBack(t, 1)
		leave()
		pass(time.Second)
		s.acked(t, "after it ended", "1", 2)
		s.calledBack(t, 2)
		s.set(func() { s.prepared = 0 })
		pass(time.Second)
		s.acked(t, "after all were taken back", "1", 0)

		s.change(maintain(validating(swap)))
		pass(time.Second)
		leave = enter(t, s.gate, validator)
		s.acked(t, "while it is validated", "1", 0)
		s.change(maintain(swap))
		pass(time.Second)
		s.acked(t, "the validation goes on after its step", "", 0)
		leave()
		pass(time.Second)
		s.acked(t, "the validation ended", "1", 0)

		next := swap
		next.ID = "2"
		s.change(maintain(next))
		pass(time.Second)
		s.acked(t, "another maintenance", "2", 0)
		s.change(maintain(Closure{}))
		pass(time.Second)
		s.acked(t, "at the end", "", 0)
		enter(t, s.gate, users)()
	})
}

// A new process over the same folder, while the API server is away.
func TestRestartWhileTheServerIsAway(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, dir string) {
		s.change(maintain(swap))
		pass(time.Second)
		s.goAway(errors.New("connection refused"))
		pass(time.Hour)
		s.stop()
		s.run(t, dir)
		if _, err := s.gate.Enter(t.Context(), users, nil); !errors.Is(err, prepare.ErrOutOfService) {
			t.Errorf("the server is away: %v", err)
		}
		s.goAway(nil)
		s.change(maintain(Closure{}))
		pass(longestPause)
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

		s.goAway(missing) // nobody knows the kind
		begun := time.Now()
		s.run(t, dir)
		enter(t, s.gate, users)()
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("waited %v for a kind that is not there", waited)
		}
		_, before := s.told()
		pass(time.Hour)
		if _, writes := s.told(); writes != before {
			t.Errorf("written %d times", writes-before)
		}
		s.goAway(nil)
		s.change(maintain(swap))
		pass(longestPause + time.Second)
		s.acked(t, "after the kind was installed", "1", 0)
	})
}

// A CRD that is older than the agent drops fields: that is no reason to write them again and again.
func TestAnOlderKind(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		s.mu.Lock()
		s.old = true
		s.mu.Unlock()
		_, before := s.told()
		s.set(func() { s.facts.Product = "NVIDIA H100" })
		pass(time.Hour)
		s.set(func() { s.facts.GPUs = 1 })
		pass(time.Second)
		told, writes := s.told()
		if writes-before != 2 || told.GPUs != 1 {
			t.Errorf("written %d times, want twice: %+v", writes-before, told)
		}
		s.change(func(n *v1alpha1.GPUNode) { n.Status.Agent = nil })
		pass(time.Second)
		if told, writes := s.told(); writes-before != 3 || told.GPUs != 1 {
			t.Errorf("after somebody took it away written %d times: %+v", writes-before, told)
		}
	})
}

func TestWritesAreRetriedSlowly(t *testing.T) {
	perform(t, func(t *testing.T, s *stage, _ string) {
		_, before := s.told()
		s.mu.Lock()
		s.away = apierrors.NewForbidden(schema.GroupResource{Resource: "gpunodes"}, nodeName, errors.New("no right"))
		s.mu.Unlock()
		s.set(func() { s.facts.Accepted = true })
		pass(time.Hour)
		if _, writes := s.told(); writes-before < 300 || writes-before > 400 {
			t.Errorf("tried %d times in an hour, want every %v", writes-before, longestPause)
		}
		s.goAway(nil)
		pass(2 * longestPause)
		s.acked(t, "after it was allowed", "", 0)
	})
}

func TestDescribe(t *testing.T) {
	node := gputest.Node(t, "h100x2")
	got := Describe(node)
	if got.GPUs != 2 || got.Product != node.GPUs[0].Product || got.ComputeCapability != "9.0" || !got.MIGCapable || got.DriverVersion == "" {
		t.Errorf("%+v", got)
	}
	node.GPUs[1].Mode = 3 - node.GPUs[1].Mode
	if got := Describe(node); got.MIGMode != mixed || !got.MIGPending {
		t.Errorf("one GPU in another mode: %+v", got)
	}
	node.GPUs[0].Lost = true
	if got := Describe(node); got.GPUs != 1 || got.MIGMode == mixed {
		t.Errorf("one GPU lost: %+v", got)
	}
	node.GPUs[1].Lost = true
	if diff := cmp.Diff(v1alpha1.AgentStatus{}, Describe(node)); diff != "" {
		t.Errorf("no GPU answers (-want +got):\n%s", diff)
	}
}
