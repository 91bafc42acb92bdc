package index

import (
	"fmt"
	"strconv"
	"strings"
	"weak"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// internTables has values that nodes with equal content share. A value that no node uses any more is garbage collected.
// Index.mu guards the tables.
type internTables struct {
	weights fit.Weights
	kinds   internTable[fit.Kind]
	wirings internTable[topology.Wiring]
	layouts internTable[deviceLayout]
}

// deviceLayout maps the devices of a node to GPUs and placements. It does not depend on the node.
type deviceLayout struct {
	// devices are by position. positions has the position of each device by name.
	devices   []fit.Device
	positions map[string]int
}

// internTable has at most one value for each content.
type internTable[T any] struct {
	known map[string]weak.Pointer[T]
	// room is the number of entries above which unused entries are removed.
	room int
}

// intern returns the value for the content, and creates it if no node uses one.
func (t *internTable[T]) intern(content string, create func() *T) *T {
	if v := t.known[content].Value(); v != nil {
		return v
	}
	if t.known == nil {
		t.known = map[string]weak.Pointer[T]{}
	}
	v := create()
	t.known[content] = weak.Make(v)
	if len(t.known) > t.room {
		for content, pointer := range t.known {
			if pointer.Value() == nil {
				delete(t.known, content)
			}
		}
		t.room = 2*len(t.known) + 16
	}
	return v
}

// kind returns the shared kind for the geometry.
func (s *internTables) kind(g *gpu.Geometry) *fit.Kind {
	content := fmt.Sprintf("%d %+v %v %+v", g.Slices(), g.Capacity(), g.BindingEngines(), g.Profiles())
	return s.kinds.intern(content, func() *fit.Kind { return fit.NewKind(g, s.weights) })
}

// wiring returns the shared topology of the GPUs. Only the fields that determine the links are used, so that UUIDs and
// serial numbers do not distinguish nodes with the same topology.
func (s *internTables) wiring(gpus []gpu.GPU) *topology.Wiring {
	bare := make([]gpu.GPU, len(gpus))
	var content strings.Builder
	for i, g := range gpus {
		bare[i] = gpu.GPU{Index: g.Index, Architecture: g.Architecture, Product: g.Product, NUMA: g.NUMA, PCIeRoot: g.PCIeRoot, Links: g.Links}
		fmt.Fprintf(&content, "%d %q %q %d %q %v\n", g.Index, g.Architecture, g.Product, g.NUMA, g.PCIeRoot, g.Links)
	}
	return s.wirings.intern(content.String(), func() *topology.Wiring { return topology.NewWiring(bare) })
}

// layout returns the shared layout of the devices with these names.
func (s *internTables) layout(names []string, devices []fit.Device) *deviceLayout {
	var content []byte
	for i, d := range devices {
		content = strconv.AppendQuote(content, names[i])
		for _, number := range [...]int{d.GPU, int(d.Use.Shape), d.Use.Placement.Profile, d.Use.Placement.Start, d.Use.Placement.Size} {
			content = strconv.AppendInt(append(content, ' '), int64(number), 10)
		}
	}
	return s.layouts.intern(string(content), func() *deviceLayout {
		l := &deviceLayout{devices: devices, positions: map[string]int{}}
		for i, name := range names {
			l.positions[strings.Clone(name)] = i
		}
		return l
	})
}
