package prepare

import (
	"context"
	"errors"
	"fmt"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Instances creates and destroys MIG devices. Implementations are safe for concurrent use; calls for
// one GPU are serialized by the caller through the GPU's lock. Errors wrap gpu.ErrBusy,
// gpu.ErrOccupied, gpu.ErrUnsupported or gpu.ErrLost where they apply.
type Instances interface {
	// List reads the instances of the GPU from the hardware, by start. A GPU instance without a
	// compute instance is listed with CI NoCompute. A GPU with MIG off has none.
	List(ctx context.Context, gpuName string) ([]gpu.Instance, error)
	// Create creates the GPU instance at exactly the placement, without a compute instance.
	Create(ctx context.Context, gpuName string, p gpu.Placement) (gpu.Instance, error)
	// Complete creates the compute instance that spans the GPU instance and returns the MIG device.
	Complete(ctx context.Context, i gpu.Instance) (gpu.Instance, error)
	// Destroy removes the compute instance, if any, and then the GPU instance. What is already gone
	// is no error.
	Destroy(ctx context.Context, i gpu.Instance) error
}

// Modes reads and sets the MIG mode and the compute mode. SetMode returns nil only when the mode is in effect.
type Modes interface {
	Mode(ctx context.Context, gpuName string) (gpu.Mode, error)
	SetMode(ctx context.Context, gpuName string, m gpu.Mode) error
	// SetComputeMode says who may use a GPU that has MIG off.
	SetComputeMode(ctx context.Context, gpuName string, m gpu.ComputeMode) error
}

// TimeSlice sets the time-slice class of a GPU: Default, Short, Medium or Long.
type TimeSlice interface {
	Set(ctx context.Context, gpuUUID, interval string) error
}

// Passthrough gives GPUs to virtual machines. Calls for one GPU are serialized by the caller through the GPU's lock. Both may be called again at any time,
// and an error that wraps gpu.ErrBusy says that somebody uses the GPU.
type Passthrough interface {
	// Bind binds the GPU, with what goes along, to vfio-pci and returns the number of its IOMMU group. One that is bound stays so, whoever uses it.
	Bind(ctx context.Context, gpuName string) (group string, err error)
	// Unbind gives it back. One that is not bound stays as it is.
	Unbind(ctx context.Context, gpuName string) error
}

// ErrNoRecord says that nothing is kept for the claim.
var ErrNoRecord = errors.New("no record")

// UnreadableRecord says that a record was kept for the claim, could not be read and was set aside: the claim
// was ours, but what it holds has to be found out anew.
type UnreadableRecord struct {
	// Claim is the claim as far as it could be made out; its UID is certain.
	Claim Ref
}

// Error names the claim.
func (e *UnreadableRecord) Error() string {
	return fmt.Sprintf("the record of claim %s (%s) is unreadable", e.Claim, e.Claim.UID)
}

// Records keeps one record per claim, durably: when Save or Delete returns, what it did survives a
// power cut. Implementations are safe for concurrent use by several processes; one claim's calls are
// serialized by the claim's lock.
type Records interface {
	// Load returns ErrNoRecord when there is none and Unreadable when it had to be set aside, now or
	// earlier.
	Load(uid string) (Record, error)
	Save(r Record) error
	// Delete of a missing record is no error. What was set aside for the claim goes as well.
	Delete(uid string) error
	// List returns every readable record by UID.
	List() ([]Record, error)
}

// Specs writes the CDI specs.
type Specs interface {
	// Write writes the claim's spec, replacing an older one, and returns per prepared device the CDI
	// ids in the order in which they are handed to kubelet. Every host file that the spec names is
	// checked; an error names the missing path.
	Write(claimUID string, devices []Prepared) ([][]string, error)
	// Remove of a missing spec is no error.
	Remove(claimUID string) error
	// List returns the claims that have a spec.
	List() ([]string, error)
}

// Inventory answers what the node looks like: geometry, names and topology. What a GPU holds is read
// through Instances when it is needed, never taken from here.
type Inventory interface {
	Node() gpu.Node
}

// ErrNoClaim says that the API server does not have the claim any more.
var ErrNoClaim = errors.New("no such claim")

// Claims asks about claims outside the agent; both know a claim by all of its Ref.
type Claims interface {
	// Held reports whether anybody may still use the claim: the API server has it with this UID, or
	// kubelet knows a pod that uses it. In doubt it is held.
	Held(ctx context.Context, claim Ref) (bool, error)
	// Allocated returns the claim with its devices of ours as the API server has it; ErrNoClaim when
	// it is gone or not allocated.
	Allocated(ctx context.Context, claim Ref) (Claim, error)
}

// Gate decides whether claims may be prepared now.
type Gate interface {
	// Enter is called before anything is made for a claim that is not ready, with the claim's lock held. While it is
	// allowed, leave is called when the claim is ready or given up; until then nobody may be told that all is quiet.
	// The GPUs are those that the claim is to hold, by name in ascending order; what it only watches is not among them.
	// A refusal is an OutOfService. Enter may wait, within ctx.
	Enter(ctx context.Context, claim Ref, gpus []string) (leave func(), err error)
}

// ErrOutOfService says that GPUs of the node are out of service.
var ErrOutOfService = errors.New("out of service")

// OutOfService is the refusal of a Gate. It wraps ErrOutOfService.
type OutOfService struct {
	// GPU is the one GPU that is out of service; empty: all of the node are.
	GPU string
	// Operation is what for, such as DriverSwap or remedy, Reason why, for people.
	Operation, Reason string
}

// Error names what is out of service, the operation and the reason.
func (e *OutOfService) Error() string {
	if e.GPU != "" {
		return fmt.Sprintf("%s is %v for a %s: %s", e.GPU, ErrOutOfService, e.Operation, e.Reason)
	}
	return fmt.Sprintf("the GPUs of this node are %v for a %s: %s", ErrOutOfService, e.Operation, e.Reason)
}

// Unwrap returns ErrOutOfService.
func (e *OutOfService) Unwrap() error { return ErrOutOfService }
