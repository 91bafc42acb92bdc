package index

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// Node is the state of one node at one revision. It is immutable.
type Node struct {
	Name string
	// Revision is the index revision at which the node last changed. Nodes with equal revisions are equal, except for
	// Held.InFlight.
	Revision uint64
	// Content is the index revision at which the published devices last changed, independent of allocations. Results
	// that were computed from device attributes and taints are valid as long as it is equal.
	Content uint64
	// Fit has the GPUs of our driver and their occupancy, including in-flight allocations and nominations. It has no
	// devices on a node without our driver, or while our pool is incomplete.
	Fit fit.Node
	// Driver and Pool identify the pool of our devices.
	Driver, Pool string
	// Devices are the published devices by position in Fit.Devices, with the taints of DeviceTaintRules. Monitor
	// devices are included: they take no capacity, so that fit reports them as free even if a claim holds them.
	Devices []*resourceapi.Device
	// Slices are the ResourceSlices of the node, of every driver, sorted by driver, pool and name, with the taints of
	// DeviceTaintRules. Only the newest generation of each pool is included.
	Slices []*resourceapi.ResourceSlice
	// Foreign reports whether other drivers publish devices on the node.
	Foreign bool
	// DelegateReason is the reason why the in-tree allocator must evaluate the node, nil if Fit is sufficient: the pool
	// is incomplete, a device cannot be read, or allocations contradict each other or name unpublished devices.
	// Allocated capacity is never free in Fit, even then.
	DelegateReason error
	// Held are the allocated devices of the node, of every driver, in order of claim and result, followed by the
	// nominated devices in order of pod. Devices that are allocated with admin access are not included.
	Held []Held

	load        Load
	content     *publishedContent
	nominations []*nomination
}

// Held is one device that a claim holds, or that is nominated for a pod.
type Held struct {
	// Claim and UID identify the claim. They are empty for a nomination.
	Claim types.NamespacedName
	UID   types.UID
	// Pod is the pod that the device is nominated for, empty for an allocated device.
	Pod    types.UID
	Result resourceapi.DeviceRequestAllocationResult
	// InFlight reports whether the allocation is decided and its write not yet confirmed.
	InFlight bool
}

// UseOf returns how a held device uses its GPU, which is named by its position in Fit.GPUs; false for a device that the pool of the node does not publish.
func (n *Node) UseOf(h *Held) (gpuAt int, use gpu.Use, published bool) {
	if h.Result.Driver != n.Driver || h.Result.Pool != n.Pool {
		return 0, gpu.Use{}, false
	}
	return n.content.useOf(h)
}

// useOf is Node.UseOf for a device of the node's pool.
func (c *publishedContent) useOf(h *Held) (gpuAt int, use gpu.Use, published bool) {
	i, published := c.layout.positions[h.Result.Device]
	if !published {
		return 0, gpu.Use{}, false
	}
	d := c.layout.devices[i]
	use = d.Use
	use.Share = wire.Share(h.Result, use.Shape, h.Result.Driver)
	return d.GPU, use, true
}

// ForPod returns the node as the pod sees it: devices that are nominated for this pod count as free.
func (n *Node) ForPod(pod types.UID) *Node {
	own := func(p *nomination) bool { return p.pod == pod }
	if !slices.ContainsFunc(n.nominations, own) {
		return n
	}
	allocated := slices.DeleteFunc(slices.Clone(n.Held), func(h Held) bool { return h.Pod != "" })
	others := slices.DeleteFunc(slices.Clone(n.nominations), own)
	return n.content.newSnapshot(header{n.Name, n.Revision, n.Content}, allocated, others)
}
