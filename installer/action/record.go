package action

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Record says that what is installed is good: the driver to return to, what was validated, and the attempt that failed before, if there was one.
type Record struct {
	Node *v1alpha1.GPUNode
	// BootID is the boot that it holds for.
	BootID  string
	Attempt *v1alpha1.Attempt
	Now     time.Time
}

// Do performs it.
func (a Record) Do(ctx context.Context, c Cluster) error {
	status := a.Node.Status.DeepCopy()
	validated := v1alpha1.Validated{BootID: a.BootID, At: metav1.NewTime(a.Now).Rfc3339Copy()}
	status.LastGoodDriver = a.Node.Spec.Driver.DeepCopy()
	if driver := a.Node.Spec.Driver; driver != nil {
		validated.Digest = driver.Digest
	}
	status.Validated, status.Attempt = &validated, a.Attempt
	return c.WriteStatus(ctx, a.Node, *status)
}

// Remember writes into a GPUNode which driver its node has already.
type Remember struct {
	Node   *v1alpha1.GPUNode
	Driver *v1alpha1.DesiredDriver
	// Good is whether it is the one to return to.
	Good bool
}

// Do performs it. What is good is written before the spec, so that a crash in between is made good by doing it again.
func (a Remember) Do(ctx context.Context, c Cluster) error {
	if a.Good && !equality.Semantic.DeepEqual(a.Driver, a.Node.Status.LastGoodDriver) {
		status := *a.Node.Status.DeepCopy()
		status.LastGoodDriver = a.Driver.DeepCopy()
		if err := c.WriteStatus(ctx, a.Node, status); err != nil {
			return err
		}
	}
	return Grant{Node: a.Node, Driver: a.Driver, AgentPool: a.Node.Spec.AgentPool, MIGMode: a.Node.Spec.MIGMode}.Do(ctx, c)
}

// RollBack returns the node to what it had and says in the status what failed.
type RollBack struct {
	Node *v1alpha1.GPUNode
	// Driver and MIGMode are what the node has from now on; Attempt, when set, what failed.
	Driver  *v1alpha1.DesiredDriver
	MIGMode v1alpha1.MIGMode
	Attempt *v1alpha1.Attempt
}

// Do performs it. The attempt is written before the spec changes: a crash in between counts nothing twice, as the attempt is a value.
func (a RollBack) Do(ctx context.Context, c Cluster) error {
	if a.Attempt != nil && !equality.Semantic.DeepEqual(a.Attempt, a.Node.Status.Attempt) {
		status := *a.Node.Status.DeepCopy()
		status.Attempt = a.Attempt
		if err := c.WriteStatus(ctx, a.Node, status); err != nil {
			return err
		}
	}
	return Grant{Node: a.Node, Driver: a.Driver, AgentPool: a.Node.Spec.AgentPool, MIGMode: a.MIGMode}.Do(ctx, c)
}
