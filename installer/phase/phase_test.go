package phase

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// ready is the observation of a node in service with driver 1.
func ready() Observed { w := serving(0); return w.observe() }

// changing is the same node granted driver 2, out of service, refusing claims, with a pod on its GPUs.
func changing() Observed {
	w := with(serving(0), func(w *world) {
		w.wanted, w.spec, w.tainted, w.entered, w.reportedID, w.gate, w.op = 2, 2, true, 1, 1, 1, v1alpha1.OperationDriverSwap
		w.labelMaint, w.labelReady, w.user, w.prepared, w.reportedPrepared = v1alpha1.OperationDriverSwap, false, PodReady, true, true
		w.phase, w.step, w.reason = v1alpha1.PhaseUpgrading, v1alpha1.StepDrain, ReasonDraining
	})
	return w.observe()
}

// underLoad replaces the driver's pod by one that cannot start, because a pod uses the GPUs and the image reloads the modules.
func underLoad(o *Observed) {
	o.Driver = Pod{UID: "replaced", State: PodFailed, Digest: digest(1), Reason: ReasonModuleInUse, Message: "nvidia is in use by python (7)"}
	o.Drain.Holders = []string{"user/pod"}
}

// TestDecisions checks the decisions for single observations. The model test covers sequences.
func TestDecisions(t *testing.T) {
	agentPod := func(o *Observed, state PodState, away time.Duration) {
		o.Agent.State = state
		o.Status.Components = []v1alpha1.ComponentStatus{{Name: ComponentAgent, State: v1alpha1.ComponentStarting, Since: metav1.NewTime(now.Add(-away))}}
	}
	tests := []struct {
		name     string
		from     func() Observed
		change   func(o *Observed)
		want     string
		contains string
	}{
		{"in service", ready, func(*Observed) {}, "Ready// InService Wait", ""},
		{"A5 the host's driver is kept", ready, func(o *Observed) {
			o.Spec.Driver, o.Driver, o.Node.Labels.Driver = nil, Pod{}, ""
			o.Status.Hardware.HostDriver = "570.86.15"
		}, "Preflight// HostDriverKept KeepHost", ""},
		{"A5 a host's driver that is too old", ready, func(o *Observed) {
			o.Driver, o.Node.Labels.Driver = Pod{}, ""
			o.Status.Hardware.HostDriver = "525.60.13"
		}, "Blocked// HostDriverTooOld Wait", "525.60.13 is installed on the host and is older than the minimum 535"},
		{"a loaded driver that is too old, at paths that no survey finds, where no driver is installed", ready, func(o *Observed) {
			o.Wanted.Driver, o.Spec.Driver, o.Driver, o.Node.Labels.Driver, o.Status.Validated.Digest = false, nil, Pod{}, "", ""
			o.Status.Hardware.LoadedDriver = "525.60.13"
		}, "Blocked// HostDriverTooOld Wait", "525.60.13 is installed on the host and is older than the minimum 535"},
		// NVIDIA/gpu-operator#2166, #83.
		{"the driver's pod was replaced under load", ready, underLoad, "Failed// DriverInUse Wait",
			"cannot start while the GPUs are in use: ModuleInUse: nvidia is in use by python (7); pods keep their GPUs"},
		{"it names the pods, and what starts the driver", ready, underLoad, "Failed// DriverInUse Wait",
			v1alpha1.AnnotationResume + " on the policy; pods that use the GPUs: user/pod"},
		{"the rollout grants a drain", ready, func(o *Observed) { underLoad(o); o.Spec.DriverRestart = "replaced" }, "Upgrading/Taint/ EnteringMaintenance Taint", ""},
		{"the drain was granted for an earlier pod", ready, func(o *Observed) { underLoad(o); o.Spec.DriverRestart = "earlier" }, "Failed// DriverInUse Wait", ""},
		{"it was not loaded since the boot", ready, func(o *Observed) {
			underLoad(o)
			o.Spec.DriverRestart, o.Node.BootID, o.Status.Hardware.BootID, o.Status.Hardware.LoadedDriver = "replaced", "boot-1", "boot-1", ""
		}, "DriverInstalling// DriverStarting Wait", ""},
		{"after the drain kubelet starts it again", changing, func(o *Observed) {
			underLoad(o)
			o.Spec.Driver, o.Spec.DriverRestart, o.Drain, o.Agent = desired(1), "replaced", Drain{}, Pod{}
			o.Node.Labels.Agent, o.Node.Labels.Driver, o.Status.Step = "", short(1), v1alpha1.StepOperate
		}, "Upgrading/Operate/ DriverStarting Wait", "to start after the drain"},
		{"a drain that was given up", changing, func(o *Observed) {
			underLoad(o)
			o.Spec.Driver, o.Node.Labels.Driver = desired(1), short(1)
		}, "Upgrading/Restore/ Restoring Leave", ""},
		// NVIDIA/gpu-operator#910, #682, #933.
		{"no precompiled driver for the kernel, and none that was good supports it", ready, func(o *Observed) {
			o.Status.Hardware.OS, o.Status.Hardware.Kernel = "ubuntu24.04", "6.9.0"
			o.Spec.Driver, o.Driver = desired(2), Pod{State: PodFailed, Digest: digest(2), Reason: ReasonImageNotFound, Message: "image i cannot be pulled"}
			o.Spec.Driver.Kernel, o.Status.LastGoodDriver.Kernel, o.Node.Labels.Driver = "6.9.0", "6.1.0", short(2)
			o.Node.Labels.Agent, o.Agent = "", Pod{}
		}, "Failed// DriverFailed Wait", "ImageNotFound: image i cannot be pulled; there is no precompiled driver for kernel 6.9.0: push the image, boot a kernel"},
		{"no driver for the operating system", ready, func(o *Observed) {
			o.Status.Hardware.OS = "ubuntu26.04"
			o.Spec.Driver, o.Driver = desired(2), Pod{State: PodFailed, Digest: digest(2), Reason: ReasonImageNotFound, Message: "image i cannot be pulled"}
			o.Spec.Driver.Version, o.Spec.Driver.OS, o.Status.LastGoodDriver.OS, o.Node.Labels.Driver = "580.1", "ubuntu26.04", "ubuntu24.04", short(2)
			o.Node.Labels.Agent, o.Agent = "", Pod{}
		}, "Failed// DriverFailed Wait", "there is no driver 580.1 for ubuntu26.04: push the image, or set a version that has one"},
		{"no image of a version for a kernel that the last good driver supports", ready, func(o *Observed) {
			o.Status.Hardware.Kernel = "6.1.0"
			o.Spec.Driver, o.Driver = desired(2), Pod{State: PodFailed, Digest: digest(2), Reason: ReasonImageNotFound, Message: "image i cannot be pulled"}
			o.Spec.Driver.Kernel, o.Status.LastGoodDriver.Kernel, o.Node.Labels.Driver = "6.1.0", "6.1.0", short(2)
			o.Node.Labels.Agent, o.Agent = "", Pod{}
		}, "DriverInstalling// DriverFailed RollBack", "rolling back to driver"},
		{"a GPUNode that was deleted: what runs stays", ready, func(o *Observed) {
			o.Spec, o.Status, o.Placed, o.Drain.Holders = v1alpha1.GPUNodeSpec{}, v1alpha1.GPUNodeStatus{}, desired(1), []string{"user/pod"}
		}, "Preflight// DriverAdopted Adopt", ""},
		{"without the DaemonSet, too, the pod has the driver's digest", ready, func(o *Observed) {
			o.Spec, o.Status, o.Placed = v1alpha1.GPUNodeSpec{}, v1alpha1.GPUNodeStatus{}, nil
		}, "Preflight// DriverAdopted Adopt", ""},
		{"an unknown driver waits for the rollout", ready, func(o *Observed) {
			o.Spec, o.Status, o.Driver, o.Placed = v1alpha1.GPUNodeSpec{}, v1alpha1.GPUNodeStatus{}, Pod{}, nil
		}, "Preflight// WaitingForRollout Wait", ""},
		{"a GPUNode that was restored from an old backup", ready, func(o *Observed) {
			o.Spec.Driver, o.Status, o.Placed = desired(2), v1alpha1.GPUNodeStatus{}, desired(1)
		}, "Preflight// DriverAdopted Adopt", ""},
		{"the agent of a pool stays until policies have spoken", ready, func(o *Observed) { o.Node.Labels.Agent = "training" }, "Ready// InService Wait", ""},
		{"A7 a change of labels or of the plan alone", ready, func(o *Observed) { o.Wanted.Digest, o.Wanted.Upgrade = digest(3), Upgrade{} }, "Ready// InService Wait", ""},
		{"A10 granted, and cordoned meanwhile", ready, func(o *Observed) { o.Spec.Driver, o.Node.Cordoned = desired(2), true }, "Blocked// NodeCordoned RollBack", ""},
		{"A10 cordoned after it began", changing, func(o *Observed) { o.Node.Cordoned = true }, "Upgrading/Drain/ Draining Evict", "user/pod"},
		{"A11 blocked pods have their time", changing, func(o *Observed) {
			o.Drain.Blocked = []BlockedPod{{"user/pod", "its budget allows no disruption"}}
		}, "Upgrading/Drain/ Draining Evict", "user/pod (its budget allows no disruption)"},
		{"A11 and no more", changing, func(o *Observed) {
			o.Drain.Blocked = []BlockedPod{{"user/pod", "its budget allows no disruption"}}
			o.Status.Since = metav1.NewTime(now.Add(-time.Hour))
		}, "Upgrading/Drain/ DrainBlocked RollBack", "user/pod (its budget allows no disruption)"},
		{"A11 back in service has a reason", ready, func(o *Observed) {
			o.Wanted.Digest = digest(2)
			o.Status.Attempt = &v1alpha1.Attempt{Digest: digest(2), Count: 1, Reason: ReasonDrainBlocked, Message: "user/pod stays"}
		}, "Blocked// DrainBlocked Wait", "user/pod stays"},
		{"A9 rolled back has a reason", ready, func(o *Observed) {
			o.Wanted.Digest = digest(2)
			o.Status.Attempt = &v1alpha1.Attempt{Digest: digest(2), Count: 1, Reason: ReasonDriverFailed, Message: "no headers"}
		}, "RolledBack// DriverFailed Wait", "no headers"},
		{"until something else is wanted", ready, func(o *Observed) {
			o.Wanted.Digest = digest(3)
			o.Status.Attempt = &v1alpha1.Attempt{Digest: digest(2), Count: 1, Reason: ReasonDriverFailed}
		}, "Validating// Validating Record", ""},
		{"an unreadable claim counts as in use", changing, func(o *Observed) {
			none := int32(0)
			o.Status.Agent.PreparedClaims, o.Drain = &none, Drain{Unreadable: true}
		}, "Upgrading/Drain/ Draining Wait", "cannot be read"},
		{"a pod that is refused is not in the way", changing, func(o *Observed) {
			none := int32(0)
			o.Status.Agent.PreparedClaims = &none
		}, "Upgrading/StopAgent/ AgentStopping Place", ""},
		{"an old acknowledgement is none", changing, func(o *Observed) { o.Status.Agent.Maintenance = "an older one" }, "Upgrading/Refuse/ WaitingForAgent Wait", ""},
		{"nor is one of before a reboot", changing, func(o *Observed) { o.Status.Agent.BootID = "an older one" }, "Upgrading/Refuse/ WaitingForAgent Wait", ""},
		{"A14 no driver is loaded after a reboot: no pod is evicted", changing, func(o *Observed) {
			o.Status.Agent.BootID, o.Driver.State, o.Status.Hardware.LoadedDriver = "an older one", PodPending, ""
		}, "Upgrading/Remove/ DriverRemoving Place", ""},
		{"an agent that is replaced", ready, func(o *Observed) { agentPod(o, PodAbsent, time.Minute) }, "Ready// InService Wait", ""},
		{"an agent that stays away", ready, func(o *Observed) { agentPod(o, PodStarting, 3*time.Minute) }, "ToolkitReady// AgentStarting Wait", ""},
		{"an agent that took over a moment ago", ready, func(o *Observed) { o.Agent.UID, o.Agent.Since = "newer", now.Add(-time.Minute) }, "Ready// InService Wait", ""},
		{"an agent whose slices are not accepted, seen just now", ready, func(o *Observed) { o.Status.Agent.Ready = false }, "Ready// InService Wait", ""},
		{"an agent whose slices are not accepted for a while", ready, func(o *Observed) {
			o.Status.Agent.Ready = false
			agentPod(o, PodReady, 3*time.Minute)
		}, "ToolkitReady// AgentStarting Wait", ""},
		{"an agent that finds no driver", ready, func(o *Observed) { o.Status.Agent.DriverVersion = "" }, "ToolkitReady// AgentStarting Wait", ""},
		{"an agent of another pool", ready, func(o *Observed) { o.Spec.AgentPool = "training" }, "ToolkitReady// AgentStarting Place", ""},
		{"a reboot is validated again", ready, func(o *Observed) {
			o.Node.BootID, o.Status.Hardware.BootID, o.Status.Agent.BootID = "next", "next", "next"
		}, "Validating// Validating Validate", ""},
		{"A17 the runtime's configuration was overwritten: what repairs it stays", ready, func(o *Observed) {
			o.Node.Labels.Toolkit, o.Toolkit.State, o.Status.Hardware.CDI = true, PodReady, false
		}, "Ready// InService Wait", ""},
		{"a device plugin", ready, func(o *Observed) { o.Node.Plugin = "nvidia.com/gpu" }, "Blocked// DevicePluginPresent Wait", "nvidia.com/gpu"},
		{"an old kubelet", ready, func(o *Observed) { o.Node.OldKubelet = "v1.35.4" }, "Blocked// KubeletTooOld Wait", "has version v1.35.4 and 1.36 is required"},
		{"a device plugin with an old kubelet", ready, func(o *Observed) {
			o.Node.Plugin, o.Node.OldKubelet = "nvidia.com/gpu", "v1.35.4"
		}, "Blocked// DevicePluginPresent Wait", ""},
		{"an old kubelet, excluded", ready, func(o *Observed) {
			o.Node.OldKubelet, o.Wanted.Managed = "v1.35.4", false
		}, "Upgrading/Taint/ EnteringMaintenance Taint", ""},
		{"an old kubelet in a maintenance", changing, func(o *Observed) { o.Node.OldKubelet = "v1.35.4" }, "Upgrading/Drain/ Draining Evict", ""},
		{"A19 two drivers", ready, func(o *Observed) { o.Wanted.Conflict = "a and b both choose the node" }, "Blocked// Conflict Wait", "a and b"},
		{"A4 opted out and in use", changing, func(o *Observed) { o.Wanted = Wanted{} }, "Blocked/Drain/ GPUsInUse Wait", "user/pod"},
		{"after a reboot a driver may be loaded until the discovery has looked", ready, func(o *Observed) {
			o.Spec.Driver, o.Driver, o.Status.Agent.BootID, o.Status.Hardware.BootID = desired(2), Pod{}, "an older one", "an older one"
		}, "Upgrading/Taint/ EnteringMaintenance Taint", ""},
		{"A17 a runtime that reads CDI by now keeps what made it", ready, func(o *Observed) {
			o.Node.Labels.Toolkit, o.Toolkit.State = true, PodReady
		}, "Ready// InService Wait", ""},
		{"a way back is gone on a cordoned node, too", ready, func(o *Observed) {
			o.Node.Labels.Driver, o.Driver.Digest, o.Node.Cordoned = short(2), digest(2), true
		}, "Upgrading/Taint/ EnteringMaintenance Taint", ""},
		{"an agent that ends on a node that leaves", ready, func(o *Observed) { o.Wanted, o.Node.Labels.Agent = Wanted{}, "" },
			"Upgrading/StopAgent/ AgentStopping Wait", ""},
		{"the old driver ends though the node has the new label", changing, func(o *Observed) {
			o.Node.Labels.Driver, o.Driver.State, o.Node.Labels.Agent, o.Agent.State = short(2), PodTerminating, "", PodAbsent
		}, "Upgrading/Remove/ DriverRemoving Wait", ""},
		{"who was waited for long enough is not waited for again", changing, func(o *Observed) { o.Drain.Waited = o.Drain.Holders },
			"Upgrading/Drain/ Draining Evict", ""},
		{"A4 a node that comes back while it waits to leave has its time for the drain", changing, func(o *Observed) {
			o.Status.Phase, o.Status.Reason, o.Status.Since = v1alpha1.PhaseBlocked, ReasonGPUsInUse, metav1.NewTime(now.Add(-5*time.Minute))
		}, "Upgrading/Drain/ Draining Evict", ""},
		{"a pod that does not go", changing, func(o *Observed) {
			o.Node.Labels.Agent, o.Agent.State, o.Status.Step, o.Status.Since = "", PodTerminating, v1alpha1.StepStopAgent, metav1.NewTime(now.Add(-time.Hour))
		}, "Failed/StopAgent/ AgentStopping Wait", ""},
		{"and stays Failed until it does", changing, func(o *Observed) {
			o.Node.Labels.Agent, o.Agent.State = "", PodTerminating
			o.Status.Phase, o.Status.Step, o.Status.Since = v1alpha1.PhaseFailed, v1alpha1.StepStopAgent, metav1.NewTime(now)
		}, "Failed/StopAgent/ AgentStopping Wait", ""},
		{"an agent that was given up stays so until it is accepted", ready, func(o *Observed) {
			o.Node.Labels.Ready, o.Agent.State, o.Status.Phase, o.Status.Reason = false, PodStarting, v1alpha1.PhaseFailed, ReasonAgentFailed
			o.Status.Since = metav1.NewTime(now)
		}, "Failed// AgentFailed Wait", ""},
		{"virtual machines bring their own driver", ready, func(o *Observed) {
			o.Wanted.Sandbox, o.Wanted.Driver, o.Spec.Driver, o.Driver, o.Node.Labels.Driver = true, false, nil, Pod{}, ""
			o.Status.Hardware.HostDriver, o.Status.Validated.Digest, o.Status.LastGoodDriver = "470.1", "", nil
		}, "Ready// InService Wait", ""},
		{"a host's driver that appears in the middle changes nothing", changing, func(o *Observed) {
			o.Node.Labels.Driver, o.Node.Labels.Agent, o.Driver, o.Agent.State = "", "", Pod{}, PodAbsent
			o.Status.Hardware.HostDriver = "570.1"
		}, "Upgrading/Operate/ DriverStarting Place", ""},
		{"an agent has its time to refuse before it is deserted", changing, func(o *Observed) {
			o.Wanted, o.Drain, o.Status.Agent.Maintenance, o.Status.Step = Wanted{}, Drain{}, "", v1alpha1.StepRefuse
		}, "Upgrading/Refuse/ WaitingForAgent Wait", ""},
		{"A18 a MIG mode that needs a reset", ready, func(o *Observed) { o.Spec.MIGMode = v1alpha1.MIGEnabled }, "Upgrading/Taint/ EnteringMaintenance Taint", ""},
		{"a MIG mode that the agent changes by itself", ready, func(o *Observed) {
			o.Spec.MIGMode, o.Status.Agent.Architecture = v1alpha1.MIGEnabled, "Hopper"
		}, "Ready// InService Wait", ""},
		{"nothing is known", func() Observed { return Observed{} }, func(*Observed) {}, "Absent// NodeGone Wait", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := test.from()
			test.change(&o)
			d := Next(o)
			got := strings.Join([]string{string(d.Phase), string(d.Step), " " + d.Reason + " " + string(d.Action)}, "/")
			if got != test.want {
				t.Errorf("decided %s (%s), want %s", got, d.Message, test.want)
			}
			if !strings.Contains(d.Message, test.contains) {
				t.Errorf("message %q, want %q", d.Message, test.contains)
			}
		})
	}
}

// TestAdoptedIsGood checks that the running driver is recorded as good only if the node is in service with it.
func TestAdoptedIsGood(t *testing.T) {
	for _, inService := range []bool{true, false} {
		o := ready()
		o.Spec, o.Status, o.Placed, o.Node.Labels.Ready = v1alpha1.GPUNodeSpec{}, v1alpha1.GPUNodeStatus{}, desired(1), inService
		if d := Next(o); d.Action != Adopt || d.Good != inService || numberOf(d.Driver) != 1 {
			t.Errorf("in service %t: %s driver %+v, good %t", inService, d.Action, d.Driver, d.Good)
		}
	}
}

// The condition of a validation that passed keeps what could not be computed, when its pods are gone.
func TestConditionHasWhatWasNotComputed(t *testing.T) {
	o := ready()
	o.Status.Validated.Message = "gpu-1: in MIG mode without MIG devices"
	all := Next(o).Conditions
	if got := all[len(all)-1]; !got.Met || got.Type != v1alpha1.ConditionWorkloadValidated || got.Message != o.Status.Validated.Message {
		t.Errorf("condition %+v", got)
	}
}

// TestConditions checks the four validations on the way to Ready, always in the same order.
func TestConditions(t *testing.T) {
	tests := []struct {
		name   string
		change func(o *Observed)
		want   string
	}{
		{"in service", func(*Observed) {}, "+DriverReady +RuntimeReady +AgentReady +ValidationPassed"},
		{"the driver fails", func(o *Observed) { o.Driver.State = PodFailed }, "-DriverFailed +RuntimeReady +AgentReady +ValidationPassed"},
		{"the host's driver", func(o *Observed) {
			o.Spec.Driver, o.Driver, o.Node.Labels.Driver = desired(9), Pod{}, ""
			o.Status.Hardware.HostDriver = "580.1"
		}, "+HostDriverKept +RuntimeReady +AgentReady -Validating"},
		{"nothing is wanted", func(o *Observed) { o.Wanted = Wanted{} }, "-NotRequired -NotRequired -NotRequired -NotRequired"},
		{"no proof is wanted", func(o *Observed) { o.Wanted.Validator = false }, "+DriverReady +RuntimeReady +AgentReady -NotRequired"},
		{"the proof failed", func(o *Observed) {
			o.Status.Validated, o.Validation.State = nil, ValidationFailed
		}, "+DriverReady +RuntimeReady +AgentReady -ValidationFailed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := ready()
			test.change(&o)
			var types, got []string
			for _, c := range Next(o).Conditions {
				sign := "-"
				if c.Met {
					sign = "+"
				}
				types, got = append(types, c.Type), append(got, sign+c.Reason)
			}
			if joined := strings.Join(got, " "); joined != test.want {
				t.Errorf("conditions %s, want %s", joined, test.want)
			}
			order := []string{
				v1alpha1.ConditionDriverValidated, v1alpha1.ConditionToolkitValidated, v1alpha1.ConditionAgentValidated, v1alpha1.ConditionWorkloadValidated,
			}
			if diff := cmp.Diff(order, types); diff != "" {
				t.Errorf("order (-want +got): %s", diff)
			}
		})
	}
}

// TestAttemptIsCountedOnce checks that a failure counts at its first decision and not again after a crash before the rollback.
func TestAttemptIsCountedOnce(t *testing.T) {
	o := changing()
	o.Node.Labels.Driver, o.Node.Labels.Agent, o.Agent.State = short(2), "", PodAbsent
	o.Driver = Pod{State: PodFailed, Digest: digest(2), Reason: "ModuleInUse"}
	o.Status.Step, o.Status.Since = v1alpha1.StepOperate, metav1.NewTime(now.Add(-time.Minute))
	for _, test := range []struct {
		before *v1alpha1.Attempt
		want   int32
	}{
		{nil, 1},
		{&v1alpha1.Attempt{Digest: digest(2), Count: 1, Last: metav1.NewTime(now.Add(-time.Hour))}, 2},
		{&v1alpha1.Attempt{Digest: digest(2), Count: 1, Last: metav1.NewTime(now.Add(-time.Second))}, 1},
		{&v1alpha1.Attempt{Digest: digest(3), Count: 7, Last: metav1.NewTime(now.Add(-time.Hour))}, 1},
	} {
		o.Status.Attempt = test.before
		d := Next(o)
		if d.Action != RollBack || d.Attempt.Count != test.want || numberOf(d.Driver) != 1 || !strings.Contains(d.Attempt.Message, "ModuleInUse") {
			t.Errorf("after %+v: %s %+v to %+v, want count %d", test.before, d.Action, d.Attempt, d.Driver, test.want)
		}
	}
}

// TestWaitsEnd checks that every wait with a limit sets Decision.After.
func TestWaitsEnd(t *testing.T) {
	o := changing()
	o.Drain.Leaving = o.Drain.Holders
	o.Status.Since = metav1.NewTime(now.Add(-20 * time.Minute))
	if d := Next(o); d.Action != Wait || d.After != 40*time.Minute {
		t.Errorf("%s, look again after %s, want 40m", d.Action, d.After)
	}
	o = ready()
	o.Driver.State, o.Driver.Since = PodStarting, now.Add(-50*time.Minute)
	if d := Next(o); d.Phase != v1alpha1.PhaseDriverInstalling || d.After != 10*time.Minute {
		t.Errorf("%s, look again after %s, want 10m", d.Phase, d.After)
	}
}

func TestOlder(t *testing.T) {
	for _, test := range []struct {
		version, than string
		want          bool
	}{
		{"470.82.01", "535", true}, {"535.54", "535", false}, {"535.54.3", "535.129", true}, {"1000.1", "535", false}, {"580.1", "580.1.2", false}, {"", "535", false},
		{"unknown", "535", false},
	} {
		if got := older(test.version, test.than); got != test.want {
			t.Errorf("%q older than %q: %v", test.version, test.than, got)
		}
	}
}

// TestMessagesAreShort checks that a message names ten pods and counts the others.
func TestMessagesAreShort(t *testing.T) {
	o := changing()
	o.Drain.Holders = strings.Split(strings.Repeat("user/pod ", 5000), " ")[:5000]
	if d := Next(o); len(d.Message) > 300 || !strings.Contains(d.Message, "4990 more") {
		t.Errorf("message of %d bytes: %.300s", len(d.Message), d.Message)
	}
}

// TestReasonsAreExplained checks that the README explains every reason of the source.
func TestReasonsAreExplained(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"reason.go", "../../api/v1alpha1/attempt.go", "../rollout/rollout.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(source)) {
			name, value, found := strings.Cut(strings.TrimSpace(line), "= \"")
			word, _, _ := strings.Cut(value, "\"")
			if found && !strings.Contains(string(readme), "`"+word+"`") {
				t.Errorf("installer/README.md does not explain `%s` (%s)", word, strings.TrimSpace(name))
			}
		}
	}
}
