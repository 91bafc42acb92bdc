package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// sickbay is a node with faulted GPUs and the health reports that kubelet receives.
type sickbay struct {
	*node
	agent   *agent
	kubelet *kubelet
	health  *harness.Health
	claims  map[string]*drapb.Claim
}

// The GPUs of an 8 × H100 that are held in one shape each. The others are not held.
const (
	sliced, turned, served, whole = 0, 1, 2, 3
	held                          = 4
)

// newSickbay creates a node with the given rules, as lines of the NodeConfig.
func newSickbay(t *testing.T, machine, rules string) *sickbay {
	t.Helper()
	n := newNode(t, machine)
	n.configure(rules)
	return &sickbay{node: n, health: &harness.Health{}, claims: map[string]*drapb.Claim{}}
}

// open starts an agent and waits until it is ready.
func (w *sickbay) open(program string, environment ...string) {
	w.t.Helper()
	w.agent = w.start(program, fmt.Sprintf("pod-%d", time.Now().UnixNano()), environment...)
	w.admit()
}

// admit connects kubelet to the agent.
func (w *sickbay) admit() {
	w.t.Helper()
	w.kubelet = w.agent.connect()
	w.health = &harness.Health{}
	agent, client, known := w.agent, w.kubelet.client, w.health
	go func() { // ends with the agent
		_ = harness.PollEvery(w.t.Context(), time.Second, func(ctx context.Context) error {
			if err := agent.Alive(); err != nil {
				return err
			}
			return client.WatchHealth(ctx, known, nil)
		})
	}()
	w.agent.waitReady()
}

// hears waits until the agent receives the driver's events of the GPUs. It is ready before that, and an earlier event
// would be lost.
func (w *sickbay) hears(indices ...int) {
	w.t.Helper()
	const harmless = 13
	end := w.goesOn(func() error {
		var err error
		for _, i := range indices {
			err = errors.Join(err, fakegpu.XID(w.machine(), fakegpu.On(i), harmless))
		}
		return err
	})
	defer end()
	for _, i := range indices {
		counted := fmt.Sprintf("\ntessera_xid_total{gpu=%q,xid=%q} ", w.whole(i).GPU, fmt.Sprint(harmless))
		w.slowly(fmt.Sprintf("the agent hears of GPU %d", i), func(ctx context.Context) error {
			text, err := w.agent.metrics(ctx)
			if err == nil && !strings.Contains(text, counted) {
				err = errors.New("it has heard nothing")
			}
			return err
		})
	}
}

// hold prepares claims of MIG devices on one GPU, of shares and of a whole GPU.
func (w *sickbay) hold() {
	w.t.Helper()
	daemons, err := w.host.RunDaemons(context.Background(), shared.product)
	w.must(err)
	w.t.Cleanup(daemons.Stop)
	for name, device := range map[string]gpu.Device{
		"slice": w.slice(sliced, 14, 0), "neighbour": w.slice(sliced, 19, 2),
		"turns": w.shapeOf(turned, gpu.TimeShare), "mps": w.shapeOf(served, gpu.MPS), "whole": w.whole(whole),
	} {
		var changes []change
		if device.Shape == gpu.TimeShare || device.Shape == gpu.MPS {
			changes = append(changes, takes("8Gi", ""))
		}
		w.claims[name] = w.claim(name, []gpu.Device{device}, append(changes, onNode(w.node))...)
		w.kubelet.mustPrepare(w.claims[name])
	}
}

// goesOn calls inject repeatedly until end is called.
func (w *sickbay) goesOn(inject func() error) (end func()) {
	w.t.Helper()
	over := harness.Again(w.t.Context(), time.Second, inject)
	return func() { w.t.Helper(); w.must(over()) }
}

// fences returns the taints of the node's devices.
func (n *node) fences(ctx context.Context) (expect.Fences, error) {
	list, err := n.host.Pool(ctx)
	return expect.ReadFences(list), err
}

// marked waits until the taints of the signal are on exactly the devices for which mark is not empty.
func (n *node) marked(what string, signal gpu.Signal, mark func(gpu.Device) string) {
	n.t.Helper()
	n.slowly(what, func(ctx context.Context) error {
		fences, err := n.fences(ctx)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(fences.Marked(mark), fences.Of(driver, signal)); diff != "" {
			return fmt.Errorf("taints %s (-want +got):\n%s", signal, head(diff))
		}
		return nil
	})
}

// head returns the beginning of a long text.
func head(text string) string { return text[:min(len(text), 2000)] }

// nowhere is the mark of a cleared signal.
func nowhere(gpu.Device) string { return "" }

// on returns a mark for the devices of the GPUs.
func (n *node) on(mark string, indices ...int) func(gpu.Device) string {
	return func(d gpu.Device) string {
		if slices.ContainsFunc(indices, func(i int) bool { return n.hardware.GPUs[i].Name() == d.GPU }) {
			return mark
		}
		return ""
	}
}

// slowly is eventually with a longer polling interval, for requests to the API server.
func (n *node) slowly(what string, check func(context.Context) error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), harness.Patience)
	defer cancel()
	if err := harness.PollEvery(ctx, 50*time.Millisecond, check); err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

// kubeletKnows waits until the devices that kubelet records as unhealthy are exactly those for which sick is not empty,
// and every report lists every device.
func (w *sickbay) kubeletKnows(what string, sick func(gpu.Device) string) {
	w.t.Helper()
	w.slowly(what, func(ctx context.Context) error {
		fences, err := w.fences(ctx)
		if err != nil {
			return err
		}
		want := slices.Sorted(maps.Keys(fences.Marked(sick)))
		got := slices.DeleteFunc(slices.Sorted(maps.Keys(w.health.Unhealthy())), func(name string) bool {
			_, published := fences.Devices[name] // reports include devices that are not offered, since claims may still hold them
			return !published
		})
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("unhealthy for kubelet (-want +got):\n%s", head(diff))
		}
		for name := range fences.Devices {
			if status, _ := w.health.Of(name); status == 0 {
				return fmt.Errorf("kubelet does not know how %s is", name)
			}
		}
		return nil
	})
}

// claimsSay waits until exactly these claims have the condition Healthy with status False.
func (w *sickbay) claimsSay(what string, sick ...string) {
	w.t.Helper()
	w.slowly(what, func(ctx context.Context) error {
		var got []string
		for name, claim := range w.claims {
			object, err := w.object(ctx, claim)
			if err != nil {
				return err
			}
			for _, d := range object.Status.Devices {
				if d.Driver == driver && meta.IsStatusConditionFalse(d.Conditions, "Healthy") {
					got = append(got, name)
				}
			}
		}
		if diff := cmp.Diff(sorted(sick), sorted(got)); diff != "" {
			return fmt.Errorf("claims that are told to be unhealthy (-want +got):\n%s", diff)
		}
		return nil
	})
}

// since returns the time at which the taint of the signal was added to a device of the GPU.
func (n *node) since(signal gpu.Signal, index int) (added time.Time) {
	n.t.Helper()
	n.slowly(fmt.Sprintf("since when GPU %d has the taint %s", index, signal), func(ctx context.Context) error {
		fences, err := n.fences(ctx)
		if err != nil {
			return err
		}
		for name, d := range fences.Devices {
			if taint, has := fences.Find(name, driver, signal); has && d.GPU == n.hardware.GPUs[index].Name() && taint.TimeAdded != nil {
				added = taint.TimeAdded.Time
				return nil
			}
		}
		return errors.New("no device has it")
	})
	return added
}
