package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// recordedStatus records the calls of Status.
type recordedStatus struct {
	mutex sync.Mutex
	lines []string
}

func (t *recordedStatus) note(format string, args ...any) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

func (t *recordedStatus) Prepared(claim prepare.Ref, answers []prepare.Answer) {
	t.note("%s %s prepared: %s", claim, claim.UID, answers[0].Device)
}

func (t *recordedStatus) Refused(claim prepare.Ref, reason, message string) {
	t.note("%s %s %s: %s", claim, claim.UID, reason, message)
}

func (t *recordedStatus) Unprepared(claim prepare.Ref) { t.note("%s %s unprepared", claim, claim.UID) }

func TestResultsAreReported(t *testing.T) {
	names := []string{"good", "busy", "panics", "unreadable", "cancelled"}
	c := config(t, names...)
	recorded := &recordedStatus{}
	c.Status = recorded
	_, kubelet := run(t, New(c))
	if _, err := kubelet.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: requests(names...)}); err != nil {
		t.Fatal(err)
	}
	if _, err := kubelet.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: requests("good", "busy")}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(recorded.lines)
	want := []string{
		"ns/busy uid-busy DeviceBusy: on node node1: destroy it first: in use; a process still uses the device, possibly outside of Kubernetes: end it; the agent retries until then",
		"ns/good uid-good prepared: device-good",
		"ns/good uid-good unprepared",
		"ns/panics uid-panics PrepareFailed: on node node1: bug in the agent: no such thing; this is a bug in the agent: report it with the agent's log; the agent retries",
		"ns/unreadable uid-unreadable InvalidParameters: on node node1: field x: unknown; correct the claim or its DeviceClass and create the claim again",
	}
	if diff := cmp.Diff(want, recorded.lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRefusal(t *testing.T) {
	holder := &prepare.AlreadyHeld{GPU: "g", Use: gpu.Use{Shape: gpu.Whole}, Claim: prepare.Ref{Namespace: "ns", Name: "holder"}}
	for name, test := range map[string]struct {
		err             error
		reason, message string
	}{
		"held":         {fmt.Errorf("device g: %w", holder), "DeviceInUse", "held by claim ns/holder as gpu"},
		"in the way":   {&prepare.ForeignInstance{}, "DeviceInUse", "was not created by Tessera"},
		"no room":      {fmt.Errorf("needs 3 shares: %w", gpu.ErrOccupied), "DeviceInUse", "until enough capacity is free"},
		"busy":         {fmt.Errorf("set the MIG mode: %w", gpu.ErrBusy), "DeviceBusy", "end it"},
		"lost":         {gpu.ErrLost, "GPULost", "boot the node"},
		"no driver":    {fmt.Errorf("%w: %w", gpu.ErrLost, gpu.ErrNoDriver), "NoDriver", "install or repair the NVIDIA driver"},
		"maintenance":  {fmt.Errorf("prepare: %w", &prepare.OutOfService{Operation: "Reset", Reason: "Xid 79"}), "OutOfService", "out of service for a Reset: Xid 79; the agent retries until"},
		"late":         {fmt.Errorf("waiting for gpu-1: %w", context.DeadlineExceeded), "Timeout", "waiting for gpu-1"},
		"daemon late":  {&prepare.DaemonFailed{Name: "mps-g", Cause: context.DeadlineExceeded}, "MPSDaemonNotReady", "run MPS daemon mps-g"},
		"unsupported":  {fmt.Errorf("MIG is off: %w", gpu.ErrUnsupported), "Unsupported", "MIG is off"},
		"anything":     {errors.New("disk full"), "PrepareFailed", "disk full"},
		"wrong params": {&invalidClaim{fmt.Errorf("no: %w", gpu.ErrUnsupported)}, "InvalidParameters", "correct"},
	} {
		reason, message := describeRefusal(test.err, "node1")
		if reason != test.reason || !strings.Contains(message, test.message) || !strings.Contains(message, "node1") {
			t.Errorf("%s: %s: %s; want %s: … %s", name, reason, message, test.reason, test.message)
		}
	}
}
