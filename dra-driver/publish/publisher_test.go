package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
)

const (
	nodeName   = "node1"
	driverName = "gpu.tessera.dev"
)

// shown is an inventory whose state the test sets.
type shown struct {
	mu       sync.Mutex
	node     gpu.Node
	known    bool
	outdated chan struct{}
}

func (s *shown) Watch() (gpu.Node, bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.known, s.outdated
}

func (s *shown) set(node gpu.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node, s.known = node, true
	close(s.outdated)
	s.outdated = make(chan struct{})
}

// server is an API server for ResourceSlices: it sets names, UIDs and versions, and counts writes.
type server struct {
	*fake.Clientset
	mu      sync.Mutex
	version int
	writes  []string
	// refuse, if set, is returned by every write; drop is applied to every written slice.
	refuse error
	drop   func(*resourceapi.ResourceSlice)
	// slow is the duration of a write.
	slow time.Duration
}

func newServer() *server {
	s := &server{Clientset: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}})}
	s.PrependReactor("*", "resourceslices", s.react)
	return s
}

func (s *server) react(action clienttesting.Action) (bool, runtime.Object, error) {
	switch action.GetVerb() {
	case "create", "update", "delete":
		<-time.After(s.delay())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch action.GetVerb() {
	case "create", "update", "delete":
		if s.refuse != nil {
			return true, nil, s.refuse
		}
		s.writes = append(s.writes, action.GetVerb())
	}
	var slice *resourceapi.ResourceSlice
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		slice = a.Object.(*resourceapi.ResourceSlice)
		s.version++
		slice.Name = fmt.Sprintf("%s%d", slice.GenerateName, s.version)
		slice.UID = types.UID(slice.Name)
	case clienttesting.UpdateActionImpl:
		slice = a.Object.(*resourceapi.ResourceSlice)
		s.version++
	default:
		return false, nil, nil
	}
	slice.ResourceVersion = fmt.Sprint(s.version)
	if s.drop != nil {
		s.drop(slice)
	}
	return false, nil, nil
}

func (s *server) delay() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slow
}

// taken returns the writes since it was last called.
func (s *server) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := s.writes
	s.writes = nil
	slices.Sort(writes)
	return writes
}

func (s *server) behave(f func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// stored returns the ResourceSlices on the server by name.
func (s *server) stored(t *testing.T) []resourceapi.ResourceSlice {
	t.Helper()
	list, err := s.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// wipe deletes all slices, as kubelet does when it starts.
func (s *server) wipe(t *testing.T) {
	t.Helper()
	for _, slice := range s.stored(t) {
		if err := s.ResourceV1().ResourceSlices().Delete(t.Context(), slice.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.taken()
}

// stage is a publisher that runs in a bubble, with its dependencies.
type stage struct {
	*server
	shown     *shown
	publisher *Publisher
	stop      func()
	// took are the durations with which Config.Accepted was called.
	took []time.Duration
}

// accepted returns how long the accepted changes of taints took.
func (s *stage) accepted() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.took)
}

// run starts the publisher.
func (s *stage) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.publisher.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	s.stop = func() {
		cancel()
		done.Wait()
	}
}

// perform runs the test in a bubble whose clock it moves with pass.
func perform(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{server: newServer(), shown: &shown{node: gpu.Node{Name: nodeName}, outdated: make(chan struct{})}}
		s.publisher = New(Config{
			Node: nodeName, Client: s.server, Inventory: s.shown,
			Options: wire.Options{Driver: driverName, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG}}},
			Accepted: func(took time.Duration) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.took = append(s.took, took)
			},
		})
		s.publisher.newQueue = func() workqueue.TypedRateLimitingInterface[string] { return late{newQueue()} }
		s.run(t)
		defer func() { s.stop() }()
		test(t, s)
	})
}

// late is a queue with a small delay. The controller compares again at the moment at which its entry of a created slice
// expires, and if it compares exactly then, as is possible only with a simulated clock, it loops endlessly.
type late struct {
	workqueue.TypedRateLimitingInterface[string]
}

func (q late) AddAfter(pool string, d time.Duration) {
	q.TypedRateLimitingInterface.AddAfter(pool, d+time.Microsecond)
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// expect checks the writes since the last call and whether the agent is ready.
func (s *stage) expect(t *testing.T, when string, ready bool, writes ...string) {
	t.Helper()
	if got := s.taken(); !slices.Equal(got, writes) {
		t.Errorf("%s: wrote %v, want %v", when, got, writes)
	}
	if err := s.publisher.Accepted(t.Context()); (err == nil) != ready {
		t.Errorf("%s: Accepted returns %v, want ready %t", when, err, ready)
	}
}

func TestPublishesOnlyChanges(t *testing.T) {
	node := gputest.Node(t, "h100x2")
	perform(t, func(t *testing.T, s *stage) {
		pass(time.Minute)
		s.expect(t, "while the node is not known", false)

		s.shown.set(node)
		pass(2 * time.Second)
		s.expect(t, "2 s after it is known", true, "create", "create")
		stored := s.stored(t)
		if len(stored[0].Spec.SharedCounters) != 2 || len(stored[1].Spec.Devices) != 52 {
			t.Errorf("stored %d counter sets and %d devices, want 2 and 2 × (1 + 25)", len(stored[0].Spec.SharedCounters), len(stored[1].Spec.Devices))
		}
		for _, slice := range stored {
			owner := slice.OwnerReferences[0]
			if slice.Spec.NodeName == nil || *slice.Spec.NodeName != nodeName || owner.Kind != "Node" || owner.UID != "node-uid" {
				t.Errorf("%s: node %v, owner %+v", slice.Name, slice.Spec.NodeName, owner)
			}
		}

		for range 100 {
			s.shown.set(gputest.Node(t, "h100x2"))
			pass(time.Minute)
		}
		s.expect(t, "after 100 equal snapshots", true)
		if submitted := s.publisher.state.submitted; submitted != 1 {
			t.Errorf("100 equal snapshots were submitted %d times", submitted-1)
		}

		node := gputest.Node(t, "h100x2")
		node.GPUs[1].Withheld = gpu.SpanMask(0, 4)
		s.shown.set(node)
		pass(time.Second)
		s.expect(t, "after slices were withheld", true, "update")
		pass(time.Hour)
		s.expect(t, "an hour later", true)
	})
}

func TestRepublishesAfterKubeletDeleted(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		s.shown.set(gputest.Node(t, "h100x2"))
		for _, wait := range []time.Duration{2 * time.Second, time.Hour} {
			pass(wait)
			s.wipe(t)
			pass(3 * time.Second)
			s.expect(t, "3 s after the wipe", true, "create", "create")
		}
	})
}

func TestNodeWithoutGPUs(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		s.shown.set(gpu.Node{Name: nodeName})
		pass(2 * time.Second)
		s.expect(t, "without a driver", true, "create")
		s.shown.set(gputest.Node(t, "t4x1"))
		pass(2 * time.Second)
		s.expect(t, "with a driver", true, "create", "update")
	})
}

func TestServerUnreachable(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		s.behave(func(s *server) { s.refuse = errors.New("connection refused") })
		s.shown.set(gputest.Node(t, "h100x2"))
		pass(10 * time.Minute)
		s.expect(t, "while the server is away", false)
		if err := s.publisher.Accepted(t.Context()); !strings.Contains(fmt.Sprint(err), "connection refused") {
			t.Errorf("Accepted returns %v, want the reason", err)
		}
		s.behave(func(s *server) { s.refuse = nil })
		pass(6 * time.Second)
		s.expect(t, "6 s after it is back", true, "create", "create")
	})
}

func TestServerIsSlow(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		node := gputest.Node(t, "h100x2")
		s.shown.set(node)
		pass(2 * time.Second)
		s.expect(t, "at first", true, "create", "create")

		s.behave(func(s *server) { s.slow = time.Minute })
		changed := gputest.Node(t, "h100x2")
		changed.GPUs[1].Withheld = gpu.SpanMask(0, 4)
		s.shown.set(changed)
		pass(maxPendingAge / 2)
		s.expect(t, "while the first change is on its way", true)
		pass(time.Minute - time.Second - maxPendingAge/2)
		s.expect(t, "while it is on its way for long", false)
		s.shown.set(node)
		pass(2 * time.Second)
		s.expect(t, "when that is written, and the second change is on its way", true, "update")
		pass(maxPendingAge)
		s.expect(t, "while the second is on its way for long", false)
		pass(time.Minute)
		s.expect(t, "when both are written", true, "update")
	})
}

func TestServerDropsFields(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		s.behave(func(s *server) {
			s.drop = func(slice *resourceapi.ResourceSlice) {
				for i := range slice.Spec.Devices {
					slice.Spec.Devices[i].ConsumesCounters = nil
				}
			}
		})
		s.shown.set(gputest.Node(t, "h100x2"))
		pass(time.Hour)
		if err := s.publisher.Accepted(t.Context()); !strings.Contains(fmt.Sprint(err), "DRAPartitionableDevices") {
			t.Errorf("the server drops the counters, and Accepted returns %v", err)
		}
	})
}

func TestUnencodableNode(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		good := gputest.Node(t, "h100x2")
		s.shown.set(good)
		pass(2 * time.Second)
		s.expect(t, "a good node", true, "create", "create")

		bad := gputest.Node(t, "h100x2")
		bad.GPUs[1].PCI = bad.GPUs[0].PCI
		s.shown.set(bad)
		pass(time.Hour)
		s.expect(t, "two GPUs of one name", false)

		s.shown.set(good)
		pass(time.Hour)
		s.expect(t, "the good node again", true)
	})
}

func TestAcceptedWhileAnotherLeads(t *testing.T) {
	perform(t, func(t *testing.T, s *stage) {
		s.shown.set(gputest.Node(t, "h100x2"))
		pass(2 * time.Second)
		s.expect(t, "as the leader", true, "create", "create")

		s.stop()
		node := gputest.Node(t, "h100x2")
		node.GPUs[0].Withheld = gpu.SpanMask(0, 1)
		s.shown.set(node)
		pass(time.Hour)
		s.expect(t, "not leading", true)
		s.wipe(t)
		pass(time.Hour)
		s.expect(t, "not leading, and no agent publishes", false)

		s.run(t)
		pass(2 * time.Second)
		s.expect(t, "leading again", true, "create", "create")
		s.stop()
		s.run(t)
		pass(time.Hour)
		s.expect(t, "leading once more", true)
	})
}

func TestComplete(t *testing.T) {
	slice := func(pool string, generation, count int64) resourceapi.ResourceSlice {
		return resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Pool: resourceapi.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: count}}}
	}
	tests := map[string]struct {
		slices []resourceapi.ResourceSlice
		want   bool
	}{
		"none":                        {},
		"all":                         {[]resourceapi.ResourceSlice{slice("p", 1, 2), slice("p", 1, 2)}, true},
		"one is missing":              {[]resourceapi.ResourceSlice{slice("p", 1, 2)}, false},
		"one too many":                {[]resourceapi.ResourceSlice{slice("p", 1, 1), slice("p", 1, 1)}, false},
		"all of the next, one old":    {[]resourceapi.ResourceSlice{slice("p", 2, 2), slice("p", 1, 3), slice("p", 2, 2)}, true},
		"all of the last, some newer": {[]resourceapi.ResourceSlice{slice("p", 1, 2), slice("p", 1, 2), slice("p", 2, 2)}, false},
		"all, of another pool":        {[]resourceapi.ResourceSlice{slice("q", 1, 1)}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := complete(test.slices, "p"); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// withXID returns the node with a fault of a GPU that was first detected at a time.
func withXID(node gpu.Node, index int, xid int, since time.Time) gpu.Node {
	node.GPUs = slices.Clone(node.GPUs)
	node.GPUs[index].Faults = []gpu.Fault{{
		GPU: node.GPUs[index].Name(), Signal: gpu.SignalXID, XID: xid, Severity: gpu.Fatal, Remedy: gpu.Reset, Since: since, Last: since, Count: 1,
	}}
	return node
}

// tainted returns the values of the taints on the server by the device's GPU.
func (s *stage) tainted(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, slice := range s.stored(t) {
		for _, device := range slice.Spec.Devices {
			for _, taint := range device.Taints {
				if !slices.Contains(found, taint.Value) {
					found = append(found, taint.Value)
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

// A taint is written at once, also just after another write, and only the ResourceSlices of its devices are written.
func TestTaintsAreWrittenImmediately(t *testing.T) {
	node := gputest.Node(t, "h100x8")
	perform(t, func(t *testing.T, s *stage) {
		s.shown.set(node)
		pass(2 * time.Second)
		if published := s.taken(); len(published) < 4 {
			t.Fatalf("wrote %v, want several slices", published)
		}
		for n := range 2 {
			s.shown.set(withXID(node, n, 79, time.Now()))
			synctest.Wait()
			if got := s.tainted(t); !slices.Equal(got, []string{"79"}) {
				t.Fatalf("at once the server has taints %v, want 79", got)
			}
			s.expect(t, fmt.Sprintf("a fault of GPU %d, of which the devices are in one slice", n), true, "update")
		}
		if got := s.accepted(); len(got) != 2 || slices.Max(got) > 0 {
			t.Errorf("accepted after %v, want twice, at once", got)
		}
		again := withXID(node, 1, 79, time.Now())
		again.GPUs[1].Faults[0].Count, again.GPUs[1].Faults[0].Last = 1000, time.Now().Add(time.Hour)
		again.GPUs[1].Faults[0].Detail = "and again"
		s.shown.set(again)
		pass(time.Minute)
		s.expect(t, "after the same fault was seen again", true)
	})
}

// After a minute of failures the last state is written, and no state in between.
func TestTaintsWhileServerUnreachable(t *testing.T) {
	node := gputest.Node(t, "h100x2")
	perform(t, func(t *testing.T, s *stage) {
		s.shown.set(node)
		pass(2 * time.Second)
		s.expect(t, "a good node", true, "create", "create")
		s.behave(func(s *server) { s.refuse = errors.New("connection refused") })
		start := time.Now()
		s.shown.set(withXID(node, 0, 79, start))
		pass(20 * time.Second)
		s.shown.set(withXID(withXID(node, 0, 79, start), 1, 48, time.Now()))
		pass(20 * time.Second)
		s.shown.set(withXID(node, 1, 48, start.Add(20*time.Second)))
		pass(20 * time.Second)
		s.expect(t, "while the server is away", false)
		s.behave(func(s *server) { s.refuse = nil })
		pass(6 * time.Second)
		s.expect(t, "6 s after it is back", true, "update")
		if got := s.tainted(t); !slices.Equal(got, []string{"48"}) {
			t.Errorf("the server has taints %v, want the last, 48", got)
		}
		since := s.stored(t)[1].Spec.Devices[26].Taints
		if len(since) != 1 || !since[0].TimeAdded.Time.Equal(start.Add(20*time.Second).Truncate(time.Second)) {
			t.Errorf("its taint is %v, want the time at which the fault was first seen, %v", since, start.Add(20*time.Second))
		}
		if got := s.accepted(); len(got) != 3 || slices.Max(got) < time.Minute {
			t.Errorf("accepted after %v, want three times, the first more than a minute", got)
		}
	})
}
