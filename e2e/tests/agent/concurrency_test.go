package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// together calls do for all claims concurrently and fails the test with each error.
func (n *node) together(claims []*drapb.Claim, do func(*drapb.Claim) error) {
	n.t.Helper()
	var group sync.WaitGroup
	for _, claim := range claims {
		group.Go(func() {
			if err := do(claim); err != nil {
				n.t.Errorf("%s: %v", claim.GetName(), err)
			}
		})
	}
	group.Wait()
}

func TestFiftySixSlicesAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x8")
	a, k := n.run()
	var claims []*drapb.Claim
	var want []string
	for g := range 8 {
		for start := range 7 {
			claims = append(claims, n.claim(fmt.Sprintf("slice-%d-%d", g, start), []gpu.Device{n.slice(g, 19, start)}))
			want = append(want, fmt.Sprintf("GPU %d: 19 at %d", g, start))
		}
	}
	prepare := func(claim *drapb.Claim) error { _, err := k.prepare(claim); return err }

	begin := time.Now()
	n.together(claims, prepare)
	t.Logf("56 slices prepared in %v", time.Since(begin))
	if diff := cmp.Diff(want, placements(n.truth())); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	n.together(claims, prepare)
	if size := a.memory(); size > 60<<10 && !raced {
		t.Errorf("the agent holds %d KiB, at most 60 MiB", size)
	}
	begin = time.Now()
	n.together(claims, k.unprepare)
	t.Logf("56 slices unprepared in %v", time.Since(begin))
	n.isClean()
}

func TestASlowGPUDelaysNoOther(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	calls := filepath.Join(n.dir, "calls")
	a, k := n.run("FAKE_NVML_LOG=" + calls)
	slow := n.claim("slow", []gpu.Device{n.slice(0, 19, 0)})
	k.mustPrepare(slow)
	n.must(fakegpu.Latency(n.machine(), 0, time.Hour))

	done := make(chan error, 1)
	go func() { done <- k.unprepare(slow) }()
	n.eventually("the destroy begins", func(context.Context) error {
		if text, err := os.ReadFile(calls); err != nil || !strings.Contains(string(text), "nvmlGpuInstanceDestroy") {
			return errors.New("not yet")
		}
		return nil
	})
	claim := n.claim("other", []gpu.Device{n.slice(1, 19, 0)})
	k.mustPrepare(claim)
	select {
	case err := <-done:
		t.Errorf("the claim on GPU 1 waited for GPU 0, which ended with: %v", err)
	default:
	}
	a.kill() // the driver's call ends with the process
	n.must(fakegpu.Latency(n.machine(), 0, 0))
	_, k = n.run()
	k.mustUnprepare(slow)
	k.mustUnprepare(claim)
	n.isClean()
}

func TestTwoAgentsOverlap(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	n.configure("profiles: [1g.10gb]\n")
	older := n.start(shared.agent, "older")
	first := older.connect()
	older.waitReady()
	const few = 2 * (7 + 4) // the MIG devices, and the GPU in every other shape
	n.publishes("the older agent's devices", devices(few))

	n.configure("")
	newer := n.start(shared.agent, "newer")
	second := newer.connect()
	newer.waitReady()
	n.publishes("the newer agent's devices", devices(n.offered()))

	// Both agents can receive calls for any claim, even concurrently for one claim.
	var claims []*drapb.Claim
	for start := range 7 {
		claims = append(claims, n.claim(fmt.Sprint("slice-", start), []gpu.Device{n.slice(0, 19, start)}))
	}
	var mutex sync.Mutex
	answers := map[string][]string{}
	n.together(slices.Concat(claims, claims, claims), func(claim *drapb.Claim) error {
		for _, k := range []*kubelet{first, second} {
			devices, err := k.prepare(claim)
			if err != nil {
				return err
			}
			mutex.Lock()
			answers[claim.GetUid()] = append(answers[claim.GetUid()], fmt.Sprint(devices))
			mutex.Unlock()
		}
		return nil
	})
	for uid, given := range answers {
		if len(slices.Compact(slices.Sorted(slices.Values(given)))) != 1 {
			t.Errorf("claim %s got different answers: %q", uid, given)
		}
	}
	if got := len(placements(n.truth())); got != len(claims) {
		t.Errorf("%d instances, want %d", got, len(claims))
	}
	n.together(slices.Concat(claims, claims), func(claim *drapb.Claim) error {
		return errors.Join(first.unprepare(claim), second.unprepare(claim))
	})
	n.isClean()

	newer.kill()
	n.publishes("the older agent's devices after the newer died", devices(few))
	claim := n.claim("after", []gpu.Device{n.whole(0)})
	n.container(first.mustPrepare(claim))
	first.mustUnprepare(claim)
}

// lasting returns claims that persist through upgrades: a MIG device and shares.
func (n *node) lasting() []*drapb.Claim {
	n.t.Helper()
	return []*drapb.Claim{
		n.claim("slice", []gpu.Device{n.slice(0, 9, 0)}),
		n.claim("client", []gpu.Device{n.shapeOf(1, gpu.MPS)}, takes("20Gi", "25")),
		n.claim("turns", []gpu.Device{n.shapeOf(2, gpu.TimeShare)}, takes("20Gi", ""), wishes("GPUConfig", long)),
	}
}

// TestUpgrade replaces the agent repeatedly, as upgrades do, while claims of every shape are prepared and unprepared.
// One of the older agents is killed, and kubelet restarts while two agents run. No call fails, and prepared claims are
// unchanged.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x8")
	daemons, err := n.host.RunDaemons(context.Background(), shared.product)
	n.must(err)
	t.Cleanup(daemons.Stop)
	current := n.start(shared.agent, "agent-0")
	k := current.connect()
	lasting := n.lasting()
	var given []string
	for _, claim := range lasting {
		given = append(given, fmt.Sprint(k.mustPrepare(claim)))
	}
	serving, set := n.serving(), modes(n.truth())

	var connected atomic.Pointer[kubelet]
	connected.Store(k)
	ended := make(chan struct{})
	churning := []*drapb.Claim{
		n.claim("churning-slice", []gpu.Device{n.slice(3, 19, 0)}),
		n.claim("churning-client", []gpu.Device{n.shapeOf(1, gpu.MPS)}, takes("10Gi", "10")),
		n.claim("churning-turns", []gpu.Device{n.shapeOf(2, gpu.TimeShare)}, takes("10Gi", ""), wishes("GPUConfig", short)),
	}
	lives := make([]atomic.Int64, len(churning)) // number of completed lives
	var group sync.WaitGroup
	for i, claim := range churning {
		group.Go(func() {
			for ; ; lives[i].Add(1) {
				select {
				case <-ended:
					return
				default:
				}
				k := connected.Load() // kubelet calls the plugin that registered last
				if _, err := k.prepare(claim); err != nil {
					t.Errorf("prepare %s, life %d: %v", claim.GetName(), lives[i].Load(), err)
				}
				if err := k.unprepare(claim); err != nil {
					t.Errorf("unprepare %s, life %d: %v", claim.GetName(), lives[i].Load(), err)
				}
			}
		})
	}
	for i := range 3 {
		next := n.start(shared.agent, fmt.Sprintf("agent-%d", i+1))
		connected.Store(next.connect())
		next.waitReady()
		if i == 2 { // kubelet restarts: it deletes the ResourceSlices and finds both agents again
			n.must(shared.client.ResourceV1().ResourceSlices().DeleteCollection(t.Context(), metav1.DeleteOptions{}, n.selector()))
			current.connect()
			connected.Store(next.connect())
			n.publishes("every device again", devices(n.offered()))
		}
		// The current life may still use the older agent, the next one does not.
		for c := range lives {
			before := lives[c].Load()
			n.eventually("kubelet calls the new agent", func(context.Context) error {
				if now := lives[c].Load(); now < before+2 {
					return fmt.Errorf("%s came and went %d times", churning[c].GetName(), now-before)
				}
				return nil
			})
		}
		if i == 1 {
			current.kill()
		} else {
			current.terminate()
		}
		current = next
	}
	close(ended)
	group.Wait()
	k = connected.Load()
	for i, claim := range lasting {
		again := k.mustPrepare(claim)
		n.container(again)
		if fmt.Sprint(again) != given[i] {
			t.Errorf("the last agent answers %v for %s, want %v", again, claim.GetName(), given[i])
		}
	}
	if diff := cmp.Diff([]any{serving, set}, []any{n.serving(), modes(n.truth())}); diff != "" {
		t.Errorf("daemons and modes (-before +after):\n%s", diff)
	}
	for _, claim := range lasting {
		k.mustUnprepare(claim)
	}
	n.isClean()
	for i, claim := range churning {
		t.Logf("%s came and went %d times", claim.GetName(), lives[i].Load())
	}
}

// TestOlderAgentDies kills an agent at every moment of a share's life while a newer one runs, which kubelet calls
// immediately afterwards.
func TestOlderAgentDies(t *testing.T) {
	t.Parallel()
	v := sharers()[len(sharers())-1]
	s := newStage(t, v)
	moments := s.life(v)
	newer := s.start(shared.product, "newer")
	k := newer.connect()
	newer.waitReady()
	for _, moment := range moments {
		claim := s.claimOf(v)
		if err := s.die(claim, moment); err != nil {
			t.Errorf("%s: %v", moment, err)
			continue
		}
		devices, err := k.prepare(claim)
		if err == nil {
			err = s.promised(v, devices)
		}
		if err = errors.Join(err, k.unprepare(claim), s.restored()); err != nil {
			t.Errorf("killed %s, then asked the newer agent: %v", moment, err)
		}
	}
	t.Logf("%d cases", len(moments))
}
