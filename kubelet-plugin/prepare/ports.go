package prepare

import (
	"context"
	"errors"
	"fmt"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Instances creates and destroys MIG devices. Implementations are safe for concurrent use; calls for
// one GPU are serialized by the caller through the GPU's lock. Errors wrap gpu.ErrBusy,
// gpu.ErrOccupied, gpu.ErrUnsupported or gpu.ErrLost.
type Instances interface {
	// List reads the instances of the GPU from the hardware, by start. A GPU instance without a
	// compute instance is listed with CI NoCompute. A GPU with MIG off has none.
	List(ctx context.Context, gpuName string) ([]gpu.Instance, error)
	// Geometry returns the MIG profiles that the GPU has in its present mode; nil for a GPU without MIG.
	Geometry(ctx context.Context, gpuName string) (*gpu.Geometry, error)
	// Create creates the GPU instance at exactly the placement, without a compute instance.
	Create(ctx context.Context, gpuName string, p gpu.Placement) (gpu.Instance, error)
	// Complete creates the compute instance that spans the GPU instance and returns the MIG device.
	Complete(ctx context.Context, i gpu.Instance) (gpu.Instance, error)
	// Destroy removes the compute instance, if any, and then the GPU instance. A missing one is no error.
	Destroy(ctx context.Context, i gpu.Instance) error
}

// Modes reads and sets the MIG mode and the compute mode. SetMode returns nil only when the mode is in effect.
type Modes interface {
	Mode(ctx context.Context, gpuName string) (gpu.Mode, error)
	SetMode(ctx context.Context, gpuName string, m gpu.Mode) error
	// SetComputeMode sets which processes may use a GPU with MIG disabled.
	SetComputeMode(ctx context.Context, gpuName string, m gpu.ComputeMode) error
}

// Processes lists the processes that use GPUs. Implementations are safe for concurrent use.
type Processes interface {
	// Processes returns the processes with a context on the GPU or its MIG devices, of all PID namespaces of the node, clients and servers of MPS
	// daemons included. If they cannot be read completely, that is an error.
	Processes(ctx context.Context, gpuName string) ([]gpu.Process, error)
}

// Monitoring makes programs that only monitor GPUs leave the node when the driver refuses something because of them.
type Monitoring interface {
	// Retry is called after SetMode failed with gpu.ErrBusy. It returns nil, after a pause, if SetMode is to be called again, and otherwise the error
	// for the claim, which wraps the refusal.
	Retry(ctx context.Context, gpuName string, refusal error) error
	// Done is called after SetMode succeeded.
	Done(gpuName string)
	// Pinned is called after Destroy failed with gpu.ErrBusy although no process uses the MIG device. It does not wait, and returns the error for the claim,
	// which wraps the refusal.
	Pinned(gpuName string, refusal error) error
	// Destroyed is called after Destroy succeeded.
	Destroyed(gpuName string)
}

// TimeSlice sets the time-slice class of a GPU: Default, Short, Medium or Long.
type TimeSlice interface {
	Set(ctx context.Context, gpuUUID, interval string) error
}

// Passthrough passes GPUs to virtual machines. Calls for one GPU are serialized by the caller through the GPU's lock. Both are idempotent. An
// error that wraps gpu.ErrBusy means that a process uses the GPU.
type Passthrough interface {
	// Bind binds the GPU and the other functions of its board to vfio-pci and returns the number of its IOMMU group. A GPU that is bound stays bound.
	Bind(ctx context.Context, gpuName string) (group string, err error)
	// Unbind returns the GPU to its driver. A GPU that is not bound is not changed.
	Unbind(ctx context.Context, gpuName string) error
}

// ErrNoRecord is returned for a claim without a record.
var ErrNoRecord = errors.New("no record")

// UnreadableRecord is the error of a claim whose record could not be read and was set aside: the driver prepared it, but what it holds has to be
// determined again.
type UnreadableRecord struct {
	// Claim is the claim as far as it could be read; the UID is always set.
	Claim Ref
	// Text is the damaged text. None of it can be trusted by itself.
	Text string
}

// Error names the claim.
func (e *UnreadableRecord) Error() string {
	return fmt.Sprintf("the record of claim %s (%s) is unreadable", e.Claim, e.Claim.UID)
}

// Records stores one record per claim durably: after Save or Delete returns, the change survives a power cut. Implementations are safe for
// concurrent use by several processes; calls for one claim are serialized by the claim's lock.
type Records interface {
	// Load returns ErrNoRecord if there is none, and UnreadableRecord if it was set aside, now or earlier.
	Load(uid string) (Record, error)
	Save(r Record) error
	// Delete of a missing record is no error. Files that were set aside for the claim are removed as well.
	Delete(uid string) error
	// List returns every readable record by UID.
	List() ([]Record, error)
	// Unreadable returns the UIDs of the claims whose records were set aside.
	Unreadable() ([]string, error)
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

// Inventory returns the node: geometry, names and topology. MIG devices are read through Instances when they are needed, never from here.
type Inventory interface {
	Node() gpu.Node
}

// ErrNoClaim is returned when the API server does not have the claim.
var ErrNoClaim = errors.New("no such claim")

// Claims reads claims from kubelet and the API server. A claim is identified by all fields of its Ref.
type Claims interface {
	// Running returns the claims of pods that kubelet runs, as far as they can be determined on the node. Held is not called for them: they are held,
	// whether the API server has them or not.
	Running(ctx context.Context) map[Ref]bool
	// Held reports whether the API server or kubelet has the claim, or had it until recently. If that cannot be determined, it is held. The error
	// wraps InUse if the API server does not have the claim any more, and names what holds it.
	Held(ctx context.Context, claim Ref) (bool, error)
	// Allocated returns the claim with its devices of this driver; ErrNoClaim if it is deleted or not allocated.
	Allocated(ctx context.Context, claim Ref) (Claim, error)
}

// Gate decides whether claims may be prepared now.
type Gate interface {
	// Enter is called before a claim is prepared, with the claim's lock held. If it admits the claim, the caller calls leave when the claim is
	// prepared or has failed; until then a maintenance is not acknowledged. The GPUs are those that the claim will hold, by name in ascending
	// order, without those that it only monitors. A refusal is an OutOfService. Enter may wait, within ctx.
	Enter(ctx context.Context, claim Ref, gpus []string) (leave func(), err error)
}

// ErrOutOfService is wrapped by refusals because GPUs are out of service.
var ErrOutOfService = errors.New("out of service")

// OutOfService is the refusal of a Gate. It wraps ErrOutOfService.
type OutOfService struct {
	// GPU is the one GPU that is out of service; empty: all of the node are.
	GPU string
	// Operation is the operation, such as DriverSwap or remedy; Reason is a text for users.
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
