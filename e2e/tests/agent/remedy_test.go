package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// signalRemedy is the signal of the taint of a remediation.
const signalRemedy gpu.Signal = v1alpha1.TaintRemediation

// order sets the remediation order for the GPU at the index. An empty step removes it.
func (i installer) order(id string, index int, step v1alpha1.RemediationOrder) {
	i.t.Helper()
	list := []v1alpha1.Remediation{}
	if step != "" {
		list = append(list, v1alpha1.Remediation{ID: id, GPU: i.whole(index).GPU, Step: step, Reason: "a row of memory is to be remapped", Since: metav1.Now()})
	}
	i.patch(map[string]any{"spec": map[string]any{"remediations": list}})
}

// stands waits until the agent reports the state for the remediation, with the given number of prepared claims.
func (i installer) stands(what, id string, state v1alpha1.AgentRemediationState, prepared int32) {
	i.t.Helper()
	i.slowly(what, func(ctx context.Context) error {
		s, err := i.agent(ctx)
		if err != nil {
			return err
		}
		for _, r := range s.Remediations {
			if r.ID == id && r.State == state && r.PreparedClaims == prepared {
				return nil
			}
		}
		return fmt.Errorf("remedies %+v, want %s %s with %d prepared", s.Remediations, id, state, prepared)
	})
}

// TestRemedy checks that a held GPU gets no new claims, is reset once after the last claim is unprepared, and does not
// affect other GPUs.
func TestRemedy(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x2", "")
	i := newInstaller(w.node)
	i.create()
	w.open(shared.agent)
	held := w.claim("held", []gpu.Device{w.slice(1, 19, 0)})
	w.kubelet.mustPrepare(held)
	w.must(fakegpu.Remap(w.machine(), 1, fakegpu.Remapping{Uncorrectable: 1, Pending: true}))
	w.marked("sick", gpu.SignalRemapPending, w.on("NoSchedule", 1))
	i.slowly("the GPUNode says it", func(ctx context.Context) error {
		s, err := i.agent(ctx)
		if err != nil || len(s.Faults) != 1 || s.Faults[0].GPU != w.whole(1).GPU || s.Faults[0].Signal != string(gpu.SignalRemapPending) {
			return fmt.Errorf("faults %+v, %w", s.Faults, err)
		}
		return nil
	})

	i.order("a1", 1, v1alpha1.OrderHold)
	i.stands("held", "a1", v1alpha1.RemediationStateHolding, 1)
	w.marked("held", signalRemedy, w.on("NoSchedule", 1))
	late := w.claim("late", []gpu.Device{w.slice(1, 19, 3)})
	if _, err := w.kubelet.prepare(late); err == nil || !strings.Contains(err.Error(), "a row of memory is to be remapped") {
		t.Errorf("prepare on a held GPU: %v", err)
	}
	w.kubelet.mustPrepare(held)
	beside := w.claim("beside", []gpu.Device{w.whole(0)})
	w.kubelet.mustPrepare(beside)

	i.order("a1", 1, v1alpha1.OrderReset)
	i.stands("it waits for who has it", "a1", v1alpha1.RemediationStateHolding, 1)
	if resets := w.truth().GPUs[1].Resets; resets != 0 {
		t.Fatalf("the GPU was reset %d times under a claim", resets)
	}
	w.kubelet.mustUnprepare(held)
	i.stands("reset", "a1", v1alpha1.RemediationStateReset, 0)
	w.marked("well, and still held", gpu.SignalRemapPending, nowhere)
	w.marked("well, and still held", signalRemedy, w.on("NoSchedule", 1))
	w.agent.kill()
	w.open(shared.agent)
	i.stands("remembered", "a1", v1alpha1.RemediationStateReset, 0)
	w.marked("still held", signalRemedy, w.on("NoSchedule", 1))
	i.order("a1", 1, "")
	w.marked("given back", signalRemedy, nowhere)
	w.kubelet.eventuallyPrepares("in service", late)
	w.kubelet.mustUnprepare(late)
	if gpus := w.truth().GPUs; gpus[0].Resets != 0 || gpus[1].Resets != 1 {
		t.Errorf("GPU 0 was reset %d times, GPU 1 %d times; want 0 and 1", gpus[0].Resets, gpus[1].Resets)
	}
	w.kubelet.mustUnprepare(beside)
	w.isClean()
}

// TestResetWithPersistenced resets a GPU that nvidia-persistenced of a driver container has open: nvidia-smi requests through the daemon's socket, which
// is in the run folder of the driver root, that it close the GPU. The agent has another /var/run, as in a pod.
func TestResetWithPersistenced(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x2", "")
	i := newInstaller(w.node)
	i.create()
	w.must(fakegpu.StartPersistenced(w.machine()))
	pod := filepath.Join(w.dir, "pod")
	w.must(os.WriteFile(pod, fmt.Appendf(nil, "#!/bin/sh\n"+
		`exec unshare --mount sh -c 'mount -t tmpfs run "$(readlink -f /var/run)" && exec "$0" "$@"' %q "$@"`+"\n", shared.agent), 0o755))
	w.open(pod)
	w.must(fakegpu.Remap(w.machine(), 1, fakegpu.Remapping{Uncorrectable: 1, Pending: true}))
	w.marked("with a row to remap", gpu.SignalRemapPending, w.on("NoSchedule", 1))
	i.order("a1", 1, v1alpha1.OrderReset)
	i.stands("reset", "a1", v1alpha1.RemediationStateReset, 0)
	gpus := w.truth().GPUs
	if gpus[1].Resets != 1 || !gpus[0].HeldByPersistenced || !gpus[1].HeldByPersistenced {
		t.Errorf("after the reset: %+v, want that the daemon has both GPUs open again", gpus)
	}
	i.order("a1", 1, "")
}

// TestKilledDuringReset kills the agent during a reset: the next agent completes it.
func TestKilledDuringReset(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x2", "")
	i := newInstaller(w.node)
	i.create()
	w.open(shared.agent)
	w.must(fakegpu.Remap(w.machine(), 1, fakegpu.Remapping{Uncorrectable: 1, Pending: true}))
	w.marked("sick", gpu.SignalRemapPending, w.on("NoSchedule", 1))
	letGo := w.hangResets()
	i.order("a1", 1, v1alpha1.OrderReset)
	i.stands("about it", "a1", v1alpha1.RemediationStateResetting, 0)
	w.agent.kill()
	letGo()
	w.open(shared.agent)
	i.stands("finished", "a1", v1alpha1.RemediationStateReset, 0)
	w.marked("well", gpu.SignalRemapPending, nowhere)
	i.order("a1", 1, "")
	w.marked("given back", signalRemedy, nowhere)
	claim := w.claim("claim", []gpu.Device{w.whole(1)})
	w.kubelet.eventuallyPrepares("in service", claim)
	w.kubelet.mustUnprepare(claim)
	w.isClean()
}

// hangResets lets resets hang until letGo is called, which also resumes resets of a killed agent.
func (n *node) hangResets() (letGo func()) {
	n.t.Helper()
	program, moved, hangs := fakegpu.SMI(n.machine()), filepath.Join(n.dir, "nvidia-smi"), filepath.Join(n.dir, "hangs")
	n.must(unix.Mkfifo(hangs, 0o600))
	n.must(os.Rename(program, moved))
	n.must(os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\ncase \"$*\" in *gpu-reset*) read line 2>/dev/null < %s;; esac\nexec %s \"$@\"\n", hangs, moved), 0o755))
	letGo = sync.OnceFunc(func() {
		gate, err := os.OpenFile(hangs, os.O_RDWR, 0)
		n.must(err)
		n.must(os.Remove(hangs))
		n.must(gate.Close())
	})
	n.t.Cleanup(letGo)
	return letGo
}

// TestResetFails checks that a failed reset is reported once and not retried for the same order.
func TestResetFails(t *testing.T) {
	t.Parallel()
	w := newSickbay(t, "h100x2", "")
	i := newInstaller(w.node)
	i.create()
	w.open(shared.agent)
	w.must(fakegpu.ECC(w.machine(), 1, 0, 1))
	w.marked("sick", gpu.SignalECC, w.on("NoSchedule", 1))
	w.must(fakegpu.Fail(w.machine(), fakegpu.ResetGPU, nvmlUnknown, 1))
	i.order("a1", 1, v1alpha1.OrderReset)
	i.stands("failed", "a1", v1alpha1.RemediationStateFailed, 0)
	w.marked("still sick", gpu.SignalECC, w.on("NoSchedule", 1))
	i.order("a2", 1, v1alpha1.OrderReset)
	i.stands("another attempt", "a2", v1alpha1.RemediationStateReset, 0)
	w.marked("well", gpu.SignalECC, nowhere)
	if resets := w.truth().GPUs[1].Resets; resets != 1 {
		t.Errorf("the GPU was reset %d times", resets)
	}
	i.order("a2", 1, "")
	w.marked("given back", signalRemedy, nowhere)
}

// nvmlUnknown is NVML_ERROR_UNKNOWN.
const nvmlUnknown = 999
