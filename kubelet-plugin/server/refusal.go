package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Status reports results to the users of claims. It is called after each call of kubelet, in the order in which the calls for one claim ended, and
// must not block.
type Status interface {
	Prepared(claim prepare.Ref, answers []prepare.Answer)
	// Refused reports that a call to prepare the claim failed. The reason is one word in CamelCase, the message states what happened, where, and
	// what to do.
	Refused(claim prepare.Ref, reason, message string)
	Unprepared(claim prepare.Ref)
}

// invalidClaim wraps the error of a claim whose devices or parameters cannot be resolved.
type invalidClaim struct{ error }

// Unwrap returns the cause.
func (u *invalidClaim) Unwrap() error { return u.error }

// other is the reason of all causes that are not in the table.
const other = "PrepareFailed"

// refusals maps causes to reasons and advice; the first match applies.
var refusals = []struct {
	is     func(error) bool
	reason string
	// advice is what the user can do.
	advice string
}{
	{wraps(errPanic), other, "this is a bug in the agent: report it with the agent's log; the agent retries"},
	{wrapsType[*invalidClaim], "InvalidParameters", "correct the claim or its DeviceClass and create the claim again"},
	{wraps(prepare.ErrOutOfService), "OutOfService", "the agent retries until the GPUs are in service again; to use another node, delete the pod and the claim"},
	{wraps(gpu.ErrNoDriver), "NoDriver", "install or repair the NVIDIA driver on the node; the agent retries until then"},
	{wraps(gpu.ErrLost), "GPULost", "the GPU does not respond: reset it or reboot the node; to use another GPU, delete the pod"},
	{wrapsType[*prepare.AlreadyHeld], "DeviceInUse", "the agent retries until that claim is released; to use another device, delete the pod and the claim"},
	{wrapsType[*prepare.ForeignInstance], "DeviceInUse", "the agent retries until it is destroyed; to use another device, delete the pod and the claim"},
	{wraps(gpu.ErrOccupied), "DeviceInUse", "the agent retries until enough capacity is free; to use another device, delete the pod and the claim"},
	{wraps(gpu.ErrBusy), "DeviceBusy", "a process still uses the device, possibly outside of Kubernetes: end it; the agent retries until then"},
	{wrapsType[*prepare.DaemonFailed], "MPSDaemonNotReady", "check the daemon's pod, which has the daemon's name, and its log; the agent retries"},
	{wraps(context.DeadlineExceeded), "Timeout", "the agent continues with the next call of kubelet"},
	{wraps(gpu.ErrUnsupported), "Unsupported", "request another device or other parameters: this GPU does not support it as configured"},
}

// Refusal is a reason under which claims are refused, and what their users can do.
type Refusal struct{ Reason, Advice string }

// Refusals returns the reasons of refusals, each with its first advice.
func Refusals() []Refusal {
	var all []Refusal
	for _, r := range refusals {
		known := slices.ContainsFunc(all, func(before Refusal) bool { return before.Reason == r.reason })
		if !known && r.reason != other {
			all = append(all, Refusal{r.reason, r.advice})
		}
	}
	return all
}

func wraps(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func wrapsType[T error](err error) bool {
	_, found := errors.AsType[T](err)
	return found
}

// describeRefusal returns the reason and the message of a failed preparation.
func describeRefusal(err error, node string) (reason, message string) {
	reason, advice := other, "the agent retries; its log on the node has details"
	for _, r := range refusals {
		if r.is(err) {
			reason, advice = r.reason, r.advice
			break
		}
	}
	return reason, fmt.Sprintf("on node %s: %v; %s", node, err, advice)
}

// reportResult reports the result of a call to prepare the claim. A call that was canceled, by kubelet or by the shutdown of the agent, is no
// refusal: the next call continues.
func (s *Server) reportResult(claim prepare.Ref, answers []prepare.Answer, err error) {
	switch {
	case err == nil:
		s.Status.Prepared(claim, answers)
	case !errors.Is(err, context.Canceled):
		reason, message := describeRefusal(err, s.Node)
		s.Status.Refused(claim, reason, message)
	}
}
