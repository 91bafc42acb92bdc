package phase

import (
	"fmt"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// swap replaces the driver: the old one is removed, then the new one is installed.
var swap = []rule{
	{"end operation before the driver goes", func(v *view) bool {
		return (v.otherDriver() || !v.Wanted.Managed) && v.Operation.State != PodAbsent
	}, endOperation},
	{"remove driver", func(v *view) bool { return v.otherDriver() && v.Node.Labels.Driver != "" && !v.arriving() }, func(v *view) Decision {
		l := v.Node.Labels
		l.Driver = ""
		return v.removing().place(l)
	}},
	{"driver removed", func(v *view) bool { return v.otherDriver() }, func(v *view) Decision {
		return v.stalling(v.removing(), stopTimeout)
	}},
	{"driver not wanted", func(v *view) bool { return v.Wanted.Managed && !v.Wanted.Driver && v.Spec.Driver != nil }, func(v *view) Decision {
		return v.in(v1alpha1.PhasePreflight, v1alpha1.StepRemove, ReasonDriverRemoving, "no driver is requested for the node").do(KeepHost)
	}},
	{"hardware unknown", func(v *view) bool {
		return v.Wanted.Managed && v.Wanted.Driver && !v.Wanted.Sandbox && v.bare() && v.Status.Hardware == nil
	}, func(v *view) Decision {
		return v.in(v1alpha1.PhasePreflight, v1alpha1.StepOperate, ReasonHardwareUnknown, "waiting for the discovery to report the node's hardware")
	}},
	{"granted", func(v *view) bool {
		return v.Wanted.Managed && v.Wanted.Driver && !v.Wanted.Sandbox && v.bare() && v.Spec.Driver == nil
	}, func(v *view) Decision {
		return v.in(v1alpha1.PhasePreflight, v1alpha1.StepOperate, ReasonWaitingForRollout, "waiting for the rollout to grant a driver")
	}},
	{"no driver", func(v *view) bool {
		return v.agent != "" && !v.Wanted.Sandbox && v.driver == "" && v.surveyed() &&
			v.Status.Hardware.HostDriver == "" && v.Status.Hardware.LoadedDriver == ""
	}, func(*view) Decision {
		return blocked(ReasonNoDriver, "the host has no driver and no policy installs one; install a driver on the host, or set driver.enabled: true")
	}},
}

// placement starts the desired driver.
var placement = []rule{
	{"place driver", func(v *view) bool {
		return v.driver != "" && v.Node.Labels.Driver != v1alpha1.DriverLabelValue(v.driver)
	}, func(v *view) Decision {
		l := v.Node.Labels
		l.Driver = v1alpha1.DriverLabelValue(v.driver)
		return v.installing(ReasonDriverStarting, "placing the driver container").place(l)
	}},
	{"driver ready", func(v *view) bool { return !v.driverReady() }, func(v *view) Decision {
		limit := v.Wanted.Upgrade.DriverTimeout
		spent := v.spent(v1alpha1.StepOperate)
		if v.Driver.State == PodPending || v.Driver.State == PodStarting {
			spent = v.Now.Sub(v.Driver.Since)
		}
		switch {
		case v.restarts() && spent < limit:
			return v.installing(ReasonDriverStarting, "waiting for the driver container to start after the drain"+v.Driver.why()).until(limit, spent)
		case v.Driver.State == PodFailed || v.Driver.State == PodSucceeded:
			return v.fail(v1alpha1.StepOperate, ReasonDriverFailed, "the driver container failed"+v.Driver.why()+v.driverAdvice())
		case spent >= limit:
			return v.fail(v1alpha1.StepOperate, ReasonDriverTimeout, fmt.Sprintf("the driver was not ready within %s%s", limit, v.Driver.why()))
		default:
			return v.installing(ReasonDriverStarting, "waiting for the driver container to be ready"+v.Driver.why()).until(limit, spent)
		}
	}},
}

// arriving reports whether the label already names the desired driver and only the old pod still exists.
func (v *view) arriving() bool {
	return v.driver != "" && v.Node.Labels.Driver == v1alpha1.DriverLabelValue(v.driver)
}

func (v *view) removing() Decision {
	return v.in(v1alpha1.PhaseDriverInstalling, v1alpha1.StepRemove, ReasonDriverRemoving, "removing the old driver's container")
}

func (v *view) installing(reason, message string) Decision {
	return v.in(v1alpha1.PhaseDriverInstalling, v1alpha1.StepOperate, reason, message)
}

// why returns the pod's reason and message as a suffix for a message.
func (p Pod) why() string {
	switch {
	case p.Reason == "" && p.Message == "":
		return ""
	case p.Message == "":
		return ": " + p.Reason
	case p.Reason == "":
		return ": " + p.Message
	default:
		return ": " + p.Reason + ": " + p.Message
	}
}
