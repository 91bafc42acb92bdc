package phase

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// world is one node with its environment: the GPUNode, the Node, pods, the kernel and actions of people. It is comparable, so that a search can
// record visited states. Drivers are 1, 2, 3; 0 is none.
type world struct {
	// What policies and people want.
	wanted                                         uint8
	wantedMIG, unmanaged, sandbox, noAgent, paused bool
	plugin, conflict, ready, cordoned, oldKubelet  bool
	gone, noDriver                                 bool
	// setGone reports whether the DaemonSets of drivers were deleted.
	setGone bool
	// host is the host's own driver: 1 is supported, 2 is too old; refuse is the policy.
	host   uint8
	refuse bool
	// The GPUNode: spec is 9 for the host's driver. Times are relative to the maintenance.
	spec, lastGood    uint8
	mig               bool
	entered, lastID   uint8
	op                v1alpha1.Operation
	attempt, attempts uint8
	attemptMIG        bool
	attemptReason     string
	attemptStep       bool // in this step
	proven, provenNow bool
	provenBoot        uint8
	provenDriver      uint8
	phase             v1alpha1.NodePhase
	step              v1alpha1.UpgradeStep
	reason            string
	late              bool
	// The Node and the taint.
	boot                 uint8
	labelDriver          uint8
	labelAgent           bool
	labelToolkit         bool
	labelReady           bool
	labelMaint           v1alpha1.Operation
	tainted              bool
	known, surveyed, cdi bool
	// Pods.
	driver       PodState
	driverDigest uint8
	driverLate   bool
	// reloads reports whether the driver's image reloads the modules when it starts. driverInUse reports whether it failed because they are in use.
	reloads, driverInUse bool
	// driverUID identifies the driver's pod, restart is the pod whose replacement is granted, wantsRestart that in the status.
	driverUID, restart, wantsRestart uint8
	// kernel is the running kernel if drivers are precompiled: a driver supports only the kernel with its own number.
	kernel        uint8
	agent         PodState
	agentNew      bool // created since the maintenance began
	agentLate     bool
	toolkit       PodState
	operation     PodState
	operationLate bool
	check         ValidationState
	checkLate     bool
	leftover      bool
	begun         bool
	// The kernel and the hardware.
	loaded uint8
	mode   bool
	// The last status of the agent, and the maintenance for which it refuses claims.
	reported                         bool
	reportedUID                      bool
	reportedBoot                     uint8
	reportedAccepted, reportedDriver bool
	reportedID                       uint8
	reportedPrepared, reportedMode   bool
	gate                             uint8
	// A user's pod and its claim; blocked reports whether a disruption budget forbids its eviction, waited whether it is waited for.
	user                                  PodState
	prepared                              bool
	blocked, waited, unreadable           bool
	badDriver                             uint8
	badAgent, badCheck, badMode, voidMode bool
	// resetting reports whether a reset of a GPU is in progress, ordered whether the agent has the order, resetLate whether it timed out.
	resetting, ordered, resetLate bool
	// budget is the number of remaining disturbances.
	budget uint8
}

var (
	now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	began = now.Add(-24 * time.Hour)
)

func digest(n uint8) string {
	if n == 0 {
		return ""
	}
	return string([]byte{'0' + n, '0' + n, '0' + n, '0' + n, '0' + n, '0' + n, '0' + n, '0' + n, '0' + n, '0' + n, '0' + n, '0' + n, 'f', 'f'})
}

func short(n uint8) string { return v1alpha1.DriverLabelValue(digest(n)) }

func number(label string) uint8 {
	if label == "" {
		return 0
	}
	return label[0] - '0'
}

func desired(n uint8) *v1alpha1.DesiredDriver {
	switch n {
	case 0:
		return nil
	case 9:
		return &v1alpha1.DesiredDriver{Source: v1alpha1.DriverHost, Version: hostVersion[1]}
	default:
		return &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: digest(n)}
	}
}

func numberOf(d *v1alpha1.DesiredDriver) uint8 {
	switch {
	case d == nil:
		return 0
	case d.Source == v1alpha1.DriverHost:
		return 9
	default:
		return number(d.Digest)
	}
}

var (
	hostVersion = []string{"", "580.1", "470.1"}
	podUIDs     = []string{"", "first", "second"}
	ids         = []string{"", "one", "two"}
	bootIDs     = []string{"boot-0", "boot-1", "boot-2", "boot-3"}
)

func since(late bool) time.Time {
	if late {
		return now.Add(-12 * time.Hour)
	}
	return now
}

// observe returns the observation of the world by the installer.
func (w *world) observe() Observed {
	o := Observed{
		Now: now,
		Wanted: Wanted{
			Managed: !w.unmanaged, Driver: !w.sandbox && !w.noDriver, Toolkit: true, Agent: !w.noAgent, Validator: true, Sandbox: w.sandbox, MinVersion: "535",
			HostDriver: v1alpha1.HostDriverKeep, Digest: digest(w.wanted),
			Upgrade: Upgrade{DriverTimeout: time.Hour, DrainTimeout: time.Hour, WaitTimeout: time.Hour, ValidateTimeout: time.Hour},
		},
		Node:    Node{Exists: !w.gone, Ready: w.ready, Cordoned: w.cordoned, BootID: bootIDs[w.boot]},
		Tainted: w.tainted,
	}
	if w.refuse {
		o.Wanted.HostDriver = v1alpha1.HostDriverRefuse
	}
	if w.wantedMIG {
		o.Wanted.MIGMode = v1alpha1.MIGEnabled
	}
	if w.mig {
		o.Spec.MIGMode = v1alpha1.MIGEnabled
	}
	if w.plugin {
		o.Node.Plugin = "nvidia.com/gpu"
	}
	if w.oldKubelet {
		o.Node.OldKubelet = "v1.35.4"
	}
	if w.conflict {
		o.Wanted.Conflict = "a and b both choose the node"
	}
	w.observePods(&o)
	w.observeGPUNode(&o)
	w.observeUsers(&o)
	return o
}

func (w *world) observePods(o *Observed) {
	l := &o.Node.Labels
	l.Driver, l.Toolkit, l.Ready, l.Maintenance = short(w.labelDriver), w.labelToolkit, w.labelReady, string(w.labelMaint)
	if w.labelAgent {
		l.Agent = "default"
	}
	if w.labelDriver != 0 && !w.setGone {
		o.Placed = desired(w.labelDriver)
	}
	o.Driver = Pod{Name: "driver", State: w.driver, Since: since(w.driverLate)}
	if w.driver != PodAbsent {
		o.Driver.Digest, o.Driver.UID = digest(w.driverDigest), podUIDs[w.driverUID]
	}
	if w.driver == PodFailed && w.driverInUse {
		o.Driver.Reason = ReasonModuleInUse
	}
	o.Spec.DriverRestart, o.Status.DriverRestart = podUIDs[w.restart], podUIDs[w.wantsRestart]
	o.Agent = Pod{Name: "agent", UID: "new", State: w.agent, Since: since(w.agentLate)}
	if !w.agentNew {
		o.Agent.Since = began.Add(-time.Hour)
	}
	o.Toolkit = Pod{Name: "toolkit", State: w.toolkit}
	o.Operation = Pod{Name: "operation", State: w.operation, Since: since(w.operationLate), Barrier: string(o.Spec.MIGMode)}
	o.Validation = Validation{State: w.check, Since: since(w.checkLate), Leftover: w.leftover, Begun: w.begun}
}

func (w *world) observeGPUNode(o *Observed) {
	o.Spec.Driver, o.Status.LastGoodDriver = desired(w.spec), desired(w.lastGood)
	if w.entered != 0 {
		o.Spec.Maintenance = &v1alpha1.Maintenance{ID: ids[w.entered], Operation: w.op, Since: metav1.NewTime(began)}
	}
	for _, d := range []*v1alpha1.DesiredDriver{o.Spec.Driver, o.Status.LastGoodDriver} {
		if w.kernel != 0 && d != nil && d.Source == v1alpha1.DriverContainer {
			d.OS, d.Kernel = "debian12", d.Digest
		}
	}
	s := &o.Status
	s.Phase, s.Step, s.Reason, s.Since = w.phase, w.step, w.reason, metav1.NewTime(since(w.late))
	if w.attempts > 0 {
		s.Attempt = &v1alpha1.Attempt{Digest: digest(w.attempt), Count: int32(w.attempts), Reason: w.attemptReason, Last: metav1.NewTime(began.Add(-time.Hour))}
		if w.attemptMIG {
			s.Attempt.Digest = MIGAttempt(v1alpha1.MIGEnabled)
		}
		if w.attemptStep {
			s.Attempt.Last = metav1.NewTime(now)
		}
	}
	if w.proven {
		s.Validated = &v1alpha1.Validated{BootID: bootIDs[w.provenBoot], Digest: digest(w.provenDriver), At: metav1.NewTime(began.Add(-time.Hour))}
		if w.provenNow {
			s.Validated.At = metav1.NewTime(began.Add(time.Hour))
		}
	}
	if w.known {
		s.Hardware = &v1alpha1.HardwareStatus{BootID: or(w.surveyed, bootIDs[w.boot], "an older one"), CDI: w.cdi, HostDriver: hostVersion[w.host], OS: "debian12", Kernel: digest(w.kernel)}
		if w.loaded != 0 {
			s.Hardware.LoadedDriver = "580"
		}
	}
	if w.reported {
		zero := int32(0)
		s.Agent = &v1alpha1.AgentStatus{BootID: bootIDs[w.reportedBoot], Ready: w.reportedAccepted, Maintenance: ids[w.reportedID], MIGCapable: w.reportedDriver, MIGMode: "Disabled", Architecture: "Ampere"}
		if w.reportedUID {
			s.Agent.PodUID = "new"
		}
		if w.reportedDriver {
			s.Agent.DriverVersion = "580"
		}
		if w.reportedMode {
			s.Agent.MIGMode = "Enabled"
		}
		if w.reportedID != 0 {
			s.Agent.PreparedClaims = &zero
			if w.reportedPrepared {
				one := int32(1)
				s.Agent.PreparedClaims = &one
			}
		}
	}
	if w.resetting || w.ordered { // a lost status is restored from the order
		s.Remediations = []v1alpha1.RemediationStatus{{GPU: "gpu", Step: v1alpha1.RemediationStepReset, Since: metav1.NewTime(since(w.resetLate))}}
	}
	if w.ordered {
		o.Spec.Remediations = []v1alpha1.Remediation{{ID: "one", GPU: "gpu", Step: v1alpha1.OrderReset}}
	}
	state := v1alpha1.ComponentReady
	if !w.accepted() {
		state = v1alpha1.ComponentStarting
	}
	s.Components = []v1alpha1.ComponentStatus{{Name: ComponentAgent, State: state, Since: metav1.NewTime(since(w.agentLate))}}
}

// accepted reports whether the agent runs and is registered with kubelet and the API server.
func (w *world) accepted() bool {
	return w.agent == PodReady && w.reported && w.reportedUID && w.reportedBoot == w.boot && w.reportedAccepted
}

func (w *world) observeUsers(o *Observed) {
	o.Drain.Unreadable = w.unreadable
	if w.user == PodAbsent {
		return
	}
	o.Drain.Holders = []string{"user/pod"}
	switch {
	case w.user == PodTerminating:
		o.Drain.Leaving = o.Drain.Holders
	case w.blocked:
		o.Drain.Blocked = []BlockedPod{{"user/pod", "its budget allows no disruption"}}
	case w.waited:
		o.Drain.Waited = o.Drain.Holders
	}
}
