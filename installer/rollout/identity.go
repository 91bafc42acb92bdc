package rollout

import (
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Parts of a rollout's identity for nodes that change without another driver: those that change their MIG mode, and those that restart their driver.
const (
	migAim     = "mig-mode"
	restartAim = "driver-restart"
)

// noAim is the identity if no node contributes a part.
const noAim = "none"

// keepsDriver reports whether an aim is that of nodes that keep their driver.
func keepsDriver(aim string) bool { return aim == migAim || aim == restartAim }

// changesDriver reports whether an aim is that of nodes that get another driver.
func changesDriver(aim string) bool { return !keepsDriver(aim) }

// aim returns the part of a rollout's identity that a node contributes. A MIG mode change has the same aim for all drivers. A node that has made its change
// and keeps its driver contributes nothing while it returns to service.
func (n *Node) aim() string {
	if n.Wanted == n.Current && (n.Change || n.Changing) {
		if n.DriverRestart {
			return restartAim
		}
		return migAim
	}
	if n.Wanted == n.Current && n.Current == n.LastGood {
		return ""
	}
	return v1alpha1.DriverLabelValue(n.Wanted)
}

// identity joins the aims of all nodes that change or must change: nodes with different kernels need different drivers in one rollout.
func identity(nodes []*Node) string {
	var aims []string
	for _, n := range nodes {
		if a := n.aim(); a != "" && !slices.Contains(aims, a) {
			aims = append(aims, a)
		}
	}
	slices.Sort(aims)
	if len(aims) == 0 {
		return noAim
	}
	return strings.Join(aims, "+")
}

// continues reports whether the identity belongs to the rollout in the status: it has no aim that the status does not have.
func continues(status *v1alpha1.RolloutStatus, id string) bool {
	if status == nil {
		return false
	}
	before := strings.Split(status.Digest, "+")
	return id == noAim || !slices.ContainsFunc(strings.Split(id, "+"), func(a string) bool { return !slices.Contains(before, a) })
}

// resumed reports whether a person has started this rollout or ended its pause.
func (f *Fleet) resumed() bool {
	return f.Resumed == "true" || f.Resumed != "" && f.Status != nil && f.Resumed == f.Status.Digest
}
