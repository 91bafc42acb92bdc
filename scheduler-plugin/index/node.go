package index

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// Node is what the index knows of one node at one revision. It is never changed once it is handed out.
type Node struct {
	Name string
	// Revision is that of the index at which the node last changed: equal revisions, equal nodes, but for
	// Held.InFlight.
	Revision uint64
	// Content is that of the index at which the published devices last changed, whatever is held of
	// them: what was learned by looking at their attributes and taints holds as long as it is equal.
	Content uint64
	// Fit are the GPUs of our driver and what they hold, in-flight allocations and promises included.
	// It has no devices on a node without our driver, or as long as our pool is incomplete.
	Fit fit.Node
	// Driver and Pool are those of our devices.
	Driver, Pool string
	// Devices are the published ones, by position in Fit.Devices, taints of rules included. Monitors are
	// among them: they take nothing, so that fit finds them free whoever holds them.
	Devices []*resourceapi.Device
	// Slices are the ResourceSlices of the node, of every driver, in order of driver, pool and name,
	// taints of rules included. Of a pool they are those of the newest generation.
	Slices []*resourceapi.ResourceSlice
	// Foreign reports that other drivers publish devices on the node.
	Foreign bool
	// DelegateReason is why Fit must not be trusted alone, nil when it may: a pool that is incomplete, a device
	// that cannot be read, allocations that contradict each other or name what is not published. What is
	// allocated still is never free in Fit.
	DelegateReason error
	// Held are the allocated devices of the node, of every driver, in order of claim and result, and after
	// them what is promised, in order of pod. Devices held with admin access are not among them.
	Held []Held

	load        Load
	content     *publishedContent
	nominations []*nomination
}

// Held is one device that a claim holds, or that is promised.
type Held struct {
	// Claim and UID are the claim's, empty for a promise.
	Claim types.NamespacedName
	UID   types.UID
	// Pod is the one that the device is promised to, empty for an allocated device.
	Pod    types.UID
	Result resourceapi.DeviceRequestAllocationResult
	// InFlight reports that the allocation is decided, and not yet known to be written.
	InFlight bool
}

// pool returns the pool of the device.
func (h *Held) pool() poolID { return poolID{h.Result.Driver, h.Result.Pool} }

// ForPod returns the node as the pod may see it: what is promised to the pod itself counts as free.
func (n *Node) ForPod(pod types.UID) *Node {
	own := func(p *nomination) bool { return p.pod == pod }
	if !slices.ContainsFunc(n.nominations, own) {
		return n
	}
	allocated := slices.DeleteFunc(slices.Clone(n.Held), func(h Held) bool { return h.Pod != "" })
	others := slices.DeleteFunc(slices.Clone(n.nominations), own)
	return n.content.newSnapshot(header{n.Name, n.Revision, n.Content}, allocated, others)
}
