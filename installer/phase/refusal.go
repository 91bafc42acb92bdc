package phase

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// minKubelet is the first version of kubelet with the feature gate DRAExtendedResource on by default. Older ones ignore the claims of extended resources, and
// start such pods without devices.
const minKubelet = "1.36"

// OldKubelet returns the version that a kubelet reports if it is older than minKubelet, and else nothing. Distributions append text of their own, such as
// v1.35.4-gke.100. A version that cannot be read is not old.
func OldKubelet(reported string) string {
	parsed, err := version.ParseGeneric(reported)
	if err != nil || parsed.AtLeast(version.MustParseGeneric(minKubelet)) {
		return ""
	}
	return reported
}

// ExplainOldKubelet returns why a version of OldKubelet is refused.
func ExplainOldKubelet(reported string) string {
	return fmt.Sprintf("kubelet has version %s and %s is required, because older ones start pods that request nvidia.com/… without GPUs", reported, minKubelet)
}

// refusals are evaluated before anything changes. A started maintenance is always finished: no refusal applies while spec.maintenance is set.
var refusals = []rule{
	{"node gone", func(v *view) bool { return !v.Node.Exists }, func(v *view) Decision {
		d := Decision{Phase: v1alpha1.PhaseAbsent, Reason: ReasonNodeGone, Message: "the Node does not exist", Action: Wait}
		if v.Tainted {
			d.Action = Untaint
		}
		return d
	}},
	{"device plugin", func(v *view) bool { return v.Wanted.Managed && !v.entered && v.Node.Plugin != "" }, func(v *view) Decision {
		return blocked(ReasonDevicePluginPresent, fmt.Sprintf(
			"a device plugin advertises %s on this node and would allocate the same GPUs; remove the device plugin, or label the node %s=false",
			v.Node.Plugin, v1alpha1.LabelOperands))
	}},
	{"kubelet too old", func(v *view) bool { return v.Wanted.Managed && !v.entered && v.Node.OldKubelet != "" }, func(v *view) Decision {
		return blocked(ReasonKubeletTooOld, fmt.Sprintf("%s; upgrade kubelet, or label the node %s=false", ExplainOldKubelet(v.Node.OldKubelet), v1alpha1.LabelOperands))
	}},
	{"conflict", func(v *view) bool { return v.Wanted.Managed && !v.entered && v.Wanted.Conflict != "" }, func(v *view) Decision {
		return blocked(ReasonConflict, v.Wanted.Conflict+"; the node stays unchanged until the conflict is resolved")
	}},
	{"host driver refused", func(v *view) bool {
		return v.meetsHostDriver() && v.Wanted.HostDriver == v1alpha1.HostDriverRefuse
	}, func(v *view) Decision {
		return blocked(ReasonHostDriverRefused, fmt.Sprintf(
			"driver %s is installed on the host and hostDriver is Refuse; remove it from the host, or set hostDriver: Keep", v.Status.Hardware.HostDriver))
	}},
	{"host driver too old", func(v *view) bool { return older(v.hostDriver(), v.Wanted.MinVersion) }, func(v *view) Decision {
		return blocked(ReasonHostDriverTooOld, fmt.Sprintf(
			"driver %s is installed on the host and is older than the minimum %s; upgrade it on the host, or remove it from the host",
			v.hostDriver(), v.Wanted.MinVersion))
	}},
	{"host driver kept", func(v *view) bool {
		return v.meetsHostDriver() && (v.Spec.Driver == nil || v.Spec.Driver.Source != v1alpha1.DriverHost)
	}, func(v *view) Decision {
		d := v.in(v1alpha1.PhasePreflight, v1alpha1.StepOperate, ReasonHostDriverKept, "the host's driver is kept").do(KeepHost)
		d.Driver = &v1alpha1.DesiredDriver{Source: v1alpha1.DriverHost, Version: v.Status.Hardware.HostDriver}
		return d
	}},
}

// notAvailable returns the grant of a node that cannot start the upgrade now.
var notAvailable = []rule{
	{"node not available", func(v *view) bool {
		return v.Wanted.Managed && !v.entered && !v.retires() && v.mustLeave() && !v.goingBack() && (v.Node.Cordoned || !v.Node.Ready)
	}, func(v *view) Decision {
		d := blocked(ReasonNodeCordoned, "the node is cordoned; its upgrade starts after kubectl uncordon")
		if !v.Node.Ready {
			d.Reason, d.Message = ReasonNodeNotReady, "the node is not Ready; its upgrade starts when it is Ready"
		}
		return v.backInPlace(d)
	}},
}

// goingBack reports whether spec.driver is the last good driver and another one is installed: a rollback and not an upgrade.
func (v *view) goingBack() bool {
	return v.otherDriver() && same(v.Spec.Driver, v.Status.LastGoodDriver)
}

// meetsHostDriver reports whether the host has its own driver where a driver container is wanted and none is installed.
func (v *view) meetsHostDriver() bool {
	return v.Wanted.Managed && v.Wanted.Driver && !v.Wanted.Sandbox && v.bare() && (!v.closed() || v.Spec.Driver == nil) &&
		v.Status.Hardware != nil && v.Status.Hardware.HostDriver != ""
}

// hostDriver returns the version of the host's driver, or "" if it does not matter: the installed one where a driver container is wanted, the loaded one
// where none is wanted. The kernel reports the loaded version wherever the driver is installed, as on Talos and COS.
func (v *view) hostDriver() string {
	switch {
	case v.meetsHostDriver():
		return v.Status.Hardware.HostDriver
	case v.Wanted.Managed && !v.Wanted.Driver && !v.Wanted.Sandbox && v.bare() && !v.closed() && v.surveyed():
		return v.Status.Hardware.LoadedDriver
	}
	return ""
}

func blocked(reason, message string) Decision {
	return Decision{Phase: v1alpha1.PhaseBlocked, Reason: reason, Message: message, Action: Wait}
}

// backInPlace turns a decision into a rollback of the grant: spec is set to what the node has. If that is unknown, the decision is unchanged.
func (v *view) backInPlace(d Decision) Decision {
	driver := v.Spec.Driver
	if v.otherDriver() {
		if driver = v.installed(); driver == nil {
			return d
		}
	}
	d.Action, d.Driver, d.MIGMode = RollBack, driver, v.Spec.MIGMode
	if v.otherMIGMode() {
		d.MIGMode = ""
	}
	return d
}

// installed returns the driver on the node, or nil if it is unknown.
func (v *view) installed() *v1alpha1.DesiredDriver {
	good := v.Status.LastGoodDriver
	switch {
	case v.Driver.State != PodAbsent && good != nil && good.Digest == v.Driver.Digest:
		return good
	case v.Driver.State != PodAbsent && v1alpha1.DriverLabelValue(v.Driver.Digest) == v.Node.Labels.Driver:
		return &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: v.Driver.Digest}
	case good != nil && v.Driver.State == PodAbsent && v1alpha1.DriverLabelValue(good.Digest) == v.Node.Labels.Driver:
		return good
	default:
		return nil
	}
}

// older reports whether one driver version is lower than another, compared number by number. An unparsable version is not older.
func older(version, than string) bool {
	a, b := strings.Split(version, "."), strings.Split(than, ".")
	for i := range min(len(a), len(b)) {
		var x, y int
		if _, err := fmt.Sscanf(a[i]+" "+b[i], "%d %d", &x, &y); err != nil {
			return false
		}
		if x != y {
			return x < y
		}
	}
	return false
}
