package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// modes returns the settings of the machine's GPUs, except MIG mode.
func modes(state fakegpu.State) []string {
	var list []string
	for _, g := range state.GPUs {
		if g.TimeSlice != 0 {
			list = append(list, fmt.Sprintf("GPU %d: time slice %d", g.Index, g.TimeSlice))
		}
		if g.ComputeMode != fakegpu.ComputeDefault {
			list = append(list, fmt.Sprintf("GPU %d: compute mode %d", g.Index, g.ComputeMode))
		}
	}
	return list
}

// serving returns the start times of the node's MPS daemons. A daemon that has a folder and does not serve has an empty
// time.
func (n *node) serving() map[string]string {
	n.t.Helper()
	daemons := map[string]string{}
	for _, folder := range n.files(n.host.MPS(), "*") {
		var state struct {
			Serving bool
			Since   string
		}
		text, err := os.ReadFile(filepath.Join(folder, "state.json"))
		if err == nil {
			err = json.Unmarshal(text, &state)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.t.Fatal(err)
		}
		if !state.Serving {
			state.Since = ""
		}
		daemons[filepath.Base(folder)] = state.Since
	}
	return daemons
}

// shareIDs counts the shares of the test binary.
var shareIDs atomic.Int32

// takes lets the claim's devices be shares of the given memory and compute.
func takes(memory, compute string) change {
	return func(claim *resourceapi.ResourceClaim) {
		if claim.Status.Allocation == nil {
			return
		}
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			r.ShareID = new(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", shareIDs.Add(1))))
			r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
				driver + "/" + wire.Memory: resource.MustParse(memory), driver + "/" + wire.Shares: resource.MustParse("1"),
			}
			if compute != "" {
				r.ConsumedCapacity[driver+"/"+wire.Compute] = resource.MustParse(compute)
			}
		}
	}
}

// wishes configures the claim's devices.
func wishes(kind, fields string) change {
	return parameters(driver, `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"`+kind+`",`+fields+`}`)
}

// watching gives the claim admin access.
func watching(claim *resourceapi.ResourceClaim) {
	for i := range claim.Spec.Devices.Requests {
		claim.Spec.Devices.Requests[i].Exactly.AdminAccess = ptr.To(true)
	}
	if claim.Status.Allocation != nil {
		for i := range claim.Status.Allocation.Devices.Results {
			claim.Status.Allocation.Devices.Results[i].AdminAccess = ptr.To(true)
		}
	}
}

// shapeOf returns the GPU at the index in another shape.
func (n *node) shapeOf(index int, shape gpu.Shape) gpu.Device {
	return gpu.Device{GPU: n.whole(index).GPU, Use: gpu.Use{Shape: shape}}
}

const (
	long      = `"timeSlicing":{"interval":"Long"}`
	short     = `"timeSlicing":{"interval":"Short"}`
	private   = `"mps":{"activeThreadPercentage":50,"pinnedMemoryLimit":"4Gi"}`
	exclusive = "GPU 1: compute mode 3"
)

// sharers returns claims of shares: each kind of share, as the first on a GPU and in addition to another one, and with
// private daemons.
func sharers() []victim {
	on := func(shape gpu.Shape) func(*stage) []gpu.Device {
		return func(s *stage) []gpu.Device { return []gpu.Device{s.shapeOf(1, shape)} }
	}
	return []victim{
		{name: "time share", devices: on(gpu.TimeShare), changes: []change{takes("10Gi", ""), wishes("GPUConfig", long)}, modes: []string{"GPU 1: time slice 3"}},
		{name: "first MPS share", devices: on(gpu.MPS), changes: []change{takes("10Gi", "25")}, modes: []string{exclusive}, serves: 1},
		{
			name: "private daemon", devices: func(s *stage) []gpu.Device { return []gpu.Device{s.whole(1)} },
			changes: []change{wishes("GPUConfig", private)}, modes: []string{exclusive}, serves: 1,
		},
		{
			name: "private daemon of a slice", devices: func(s *stage) []gpu.Device { return []gpu.Device{s.slice(0, 9, 4)} },
			changes: []change{wishes("MIGConfig", private)}, carved: []string{"GPU 0: 9 at 4"}, serves: 1,
		},
		{
			name: "monitor", changes: []change{watching},
			devices: func(s *stage) []gpu.Device {
				return []gpu.Device{s.shapeOf(0, gpu.Monitor), s.shapeOf(1, gpu.Monitor), s.slice(0, 19, 0)}
			},
		},
		{
			name: "other time share", beside: "time share", neighbour: []change{takes("20Gi", ""), wishes("GPUConfig", short)},
			devices: on(gpu.TimeShare), changes: []change{takes("10Gi", ""), wishes("GPUConfig", long)}, modes: []string{"GPU 1: time slice 1"},
		},
		{
			name: "other MPS share", beside: "MPS share", neighbour: []change{takes("20Gi", "50")},
			devices: on(gpu.MPS), changes: []change{takes("40Gi", "25")}, modes: []string{exclusive}, serves: 1,
		},
	}
}

// stageOf ends the last stage, if there is one, and creates a new one: only one stage at a time runs daemons.
func stageOf(t *testing.T, last *stage, v victim) *stage {
	t.Helper()
	if last != nil && last.beside == v.beside {
		return last
	}
	if last != nil {
		last.daemons.Stop()
	}
	return newStage(t, v)
}

// TestSharersKilledAtEveryStep kills the agent at every moment of the life of every shared claim. The ending alternates
// from one moment to the next.
func TestSharersKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	var s *stage
	var cases []death
	for i, v := range sharers() {
		s = stageOf(t, s, v)
		moments := s.life(v)
		if v.serves > 0 && !slices.ContainsFunc(moments, func(m string) bool { return strings.HasPrefix(m, "before ensure-daemon") }) {
			t.Errorf("%s: no daemon in a clean run: %q", v.name, moments)
		}
		for j, moment := range moments {
			cases = append(cases, death{v, []string{moment}, endings()[(i+j)%len(endings())]})
		}
	}
	s.daemons.Stop()
	table(t, cases, func(s *stage, d death) error { return d.play(s) })
}

// TestSharersKilledWhileTheyRecover also kills the agent that recovers a share.
func TestSharersKilledWhileTheyRecover(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	var s *stage
	var cases []death
	for i, v := range sharers() {
		if v.modes == nil {
			continue
		}
		s = stageOf(t, s, v)
		for j, moment := range s.undoing(v, carved) {
			cases = append(cases, death{v, []string{carved, moment}, endings()[(i+j)%len(endings())]})
		}
	}
	s.daemons.Stop()
	table(t, cases, func(s *stage, d death) error { return d.play(s) })
}

// TestEveryCallOfSharersFailsOnce fails the last call of each NVML function that a share uses: the earlier calls are
// those of every starting agent.
func TestEveryCallOfSharersFailsOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	var s *stage
	var cases []fault
	all := sharers()
	for _, v := range []victim{all[0], all[1], all[3]} { // the others make no additional calls
		s = stageOf(t, s, v)
		last := map[string]int{}
		calls := s.calls(v)
		for i, call := range calls {
			last[call] = i + 1
		}
		if slices.Contains(v.modes, exclusive) && last["nvmlDeviceSetComputeMode"] == 0 && v.beside == "" {
			t.Errorf("%s: a clean run sets no compute mode", v.name)
		}
		for i, call := range calls {
			if last[call] == i+1 {
				cases = append(cases, fault{v, i + 1, call, errorUnknown})
			}
		}
	}
	s.daemons.Stop()
	table(t, cases, func(s *stage, f fault) error {
		return s.fail(f.victim, fmt.Sprintf("FAKE_NVML_FAIL=%d:%d", f.number, f.code))
	})
}

// TestTimeSliceFailsOnce fails nvidia-smi, at the claim's beginning and at its end.
func TestTimeSliceFailsOnce(t *testing.T) {
	t.Parallel()
	v := sharers()[0]
	s := newStage(t, v)
	_, k := s.run()
	claim := s.claimOf(v)
	failOnce := func() { s.must(fakegpu.Fail(s.machine(), fakegpu.SetTimeSlice, errorUnknown, 1)) }
	failOnce()
	if _, err := k.prepare(claim); err == nil {
		t.Error("prepared without the time slice that it wishes")
	}
	s.must(s.promised(v, k.mustPrepare(claim)))
	failOnce()
	if err := k.unprepare(claim); err != nil {
		s.must(s.retry(func() error { return k.unprepare(claim) }))
	}
	s.eventually("nothing is left", func(context.Context) error { return s.restored() })
}

// TestDaemonDies kills the supervisor of a daemon, removes its program and deletes its pod.
func TestDaemonDies(t *testing.T) {
	t.Parallel()
	v := sharers()[1]
	s := newStage(t, v)
	_, k := s.run()
	program := fakegpu.MPSControl(s.machine())
	s.must(os.Rename(program, program+".away"))
	claim := s.claimOf(v)
	prepared := make(chan error, 1)
	go func() {
		_, err := k.prepare(claim)
		prepared <- err
	}()
	s.eventuallyFile("the daemon is tried", filepath.Join(s.host.MPS(), "*", "state.json"))
	s.must(os.Rename(program+".away", program))
	s.must(<-prepared)
	given := k.mustPrepare(claim)
	s.must(s.promised(v, given))

	since := func() string {
		for _, since := range s.serving() {
			return since
		}
		return ""
	}
	before := since()
	again := func(what string) {
		s.eventually(what, func(context.Context) error {
			if now := since(); now == "" || now == before {
				return fmt.Errorf("it serves since %q", now)
			}
			return nil
		})
		before = since()
		s.must(s.promised(v, k.mustPrepare(claim)))
	}
	s.daemons.Kill()
	again("the daemon comes back after its supervisor was killed")
	pods := shared.client.CoreV1().Pods(metav1.NamespaceDefault)
	s.must(pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=tessera-mps", FieldSelector: "spec.nodeName=" + s.name,
	}))
	again("the daemon comes back after its pod was deleted")
	k.mustUnprepare(claim)
	s.must(s.restored())
}

// TestSharesAreNotGivenTwice prepares shares as allocated by two schedulers without coordination.
func TestSharesAreNotGivenTwice(t *testing.T) {
	t.Parallel()
	s := newStage(t, victim{})
	_, k := s.run()
	for name, test := range map[string]struct {
		shape  gpu.Shape
		shares [2]change
	}{
		"time shares": {gpu.TimeShare, [2]change{takes("50Gi", ""), takes("40Gi", "")}},
		"MPS memory":  {gpu.MPS, [2]change{takes("50Gi", "10"), takes("40Gi", "10")}},
		"MPS compute": {gpu.MPS, [2]change{takes("5Gi", "60"), takes("5Gi", "50")}},
	} {
		t.Run(name, func(t *testing.T) {
			device := []gpu.Device{s.shapeOf(1, test.shape)}
			name := strings.ToLower(strings.ReplaceAll(name, " ", "-"))
			holder, second := s.claim(name+"-holder", device, test.shares[0]), s.claim(name+"-second", device, test.shares[1])
			k.mustPrepare(holder)
			if _, err := k.prepare(second); err == nil || !strings.Contains(err.Error(), holder.GetName()) {
				t.Errorf("the second share: %v, want an error that names %s", err, holder.GetName())
			}
			k.mustUnprepare(holder)
			k.mustPrepare(second)
			k.mustUnprepare(second)
			s.must(s.restored())
		})
	}
}

// TestOfferOfANode configures different offers on two nodes.
func TestOfferOfANode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		config string
		want   map[string]int
	}{
		"slices of two profiles": {"shapes: [mig]\nprofiles: [1g.10gb, 3g.40gb]\n", map[string]int{"mig 1g.10gb": 14, "mig 3g.40gb": 4}},
		"three shares":           {"shapes: [mps, gpu]\nshares: 3\n", map[string]int{"mps 3": 2, "gpu": 2}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "h100x2")
			n.configure(test.config)
			_, k := n.run()
			n.publishes(name, func(p published) error {
				got := map[string]int{}
				for _, d := range p.devices {
					kind := *d.Attributes[wire.Type].StringValue
					if profile := d.Attributes[wire.Profile].StringValue; profile != nil {
						kind += " " + *profile
					}
					if count, shared := d.Capacity[wire.Shares]; shared {
						kind += " " + count.Value.String()
					}
					got[kind]++
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					return fmt.Errorf("-want +got:\n%s", diff)
				}
				return nil
			})
			if test.want["gpu"] == 0 {
				return
			}
			// The agent enforces the limit as well: another allocator may not support the node's number.
			daemons, err := n.host.RunDaemons(context.Background(), shared.product)
			n.must(err)
			defer daemons.Stop()
			var claims []*drapb.Claim
			for i := range 4 {
				claims = append(claims, n.claim(fmt.Sprint("share-", i), []gpu.Device{n.shapeOf(0, gpu.MPS)}, takes("1Gi", "")))
				if _, err := k.prepare(claims[i]); (err != nil) != (i == 3) {
					t.Errorf("share %d: %v", i+1, err)
				}
			}
			for _, claim := range claims {
				k.mustUnprepare(claim)
			}
			n.isClean()
		})
	}
}
