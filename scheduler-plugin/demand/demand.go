package demand

import (
	"errors"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// ErrDelegate says that fit cannot decide a demand, or not on this node: the in-tree allocator does.
var ErrDelegate = errors.New("left to the in-tree allocator")

// Classes finds DeviceClasses (fwk.DeviceClassLister).
type Classes interface {
	Get(name string) (*resourceapi.DeviceClass, error)
}

// Reader reads claims. It remembers what selectors say about devices, and is safe for concurrent use.
type Reader struct {
	classes Classes
	roaming Roaming
}

// Roaming returns the slices of devices that are not bound to one node, of every driver (index.Index).
type Roaming interface {
	Roaming() []*resourceapi.ResourceSlice
}

// NewReader returns a reader.
func NewReader(classes Classes, roaming Roaming) *Reader {
	return &Reader{classes: classes, roaming: roaming}
}

// Read returns what the claims, which are not allocated, ask for together. An error wraps ErrDelegate
// when fit cannot decide it, on any node.
func (r *Reader) Read(claims []*resourceapi.ResourceClaim) (*Demand, error) { return &Demand{}, nil }

// Demand is what a pod's claims ask for, of any node.
type Demand struct {
	// Key is equal for demands that ask for the same: pods of one Deployment, for instance.
	Key string
}

// On returns what is asked of this node. An error wraps ErrDelegate when fit cannot decide it there, such
// as when devices of another driver match, too. The answer is remembered for nodes of equal Content and
// must not be changed.
func (d *Demand) On(n *index.Node) (*fit.Demand, error) { return &fit.Demand{}, nil }

// Forget drops what is remembered of a node that is gone.
func (d *Demand) Forget(node string) {}
