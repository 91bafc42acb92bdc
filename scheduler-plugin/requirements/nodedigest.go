package requirements

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// digest stands for what was digested: equal digests, equal contents.
type digest [sha256.Size]byte

// nodeDigestCache are what is known of the published devices of every node, for all demands.
type nodeDigestCache struct {
	mu    sync.Mutex
	nodes map[string]*nodeDigests
}

// nodeDigests is what was learned about the devices of one node of one content: a digest of all values of an
// attribute, for each attribute that a demand looks at. Nodes with equal digests are the same to whoever
// looks at no more, so that most nodes of a cluster are looked at once and for all.
type nodeDigests struct {
	content     uint64
	drivers     []driverDevices
	unsupported error

	mu      sync.Mutex
	columns map[column]digest
}

// driverDevices are devices of one driver.
type driverDevices struct {
	driver  string
	devices []*resourceapi.Device
}

// column names a part of what is published of each device.
type column struct {
	part columnPart
	read readField
}

type columnPart int

const (
	attributeValues columnPart = iota
	capacityValues
	// facts are all that counts whatever is asked for; policies all that a request for capacity needs.
	facts
	policies
)

// forNode returns the survey of the node.
func (s *nodeDigestCache) forNode(n *index.Node) *nodeDigests {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.nodes[n.Name]
	if !ok || known.content != n.Content {
		known = newNodeDigests(n)
		s.nodes[n.Name] = known
	}
	return known
}

func (s *nodeDigestCache) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, node)
}

func newNodeDigests(n *index.Node) *nodeDigests {
	s := &nodeDigests{content: n.Content, drivers: []driverDevices{{n.Driver, n.Devices}}, columns: map[column]digest{}}
	for _, slice := range n.Slices {
		switch {
		case slice.Spec.Driver != n.Driver:
			s.drivers = append(s.drivers, devicesOfSlice(slice))
		case s.unsupported == nil:
			s.unsupported = unsupportedSlice(slice)
		}
	}
	return s
}

// devicesOfSlice returns the devices of a slice.
func devicesOfSlice(slice *resourceapi.ResourceSlice) driverDevices {
	g := driverDevices{driver: slice.Spec.Driver, devices: make([]*resourceapi.Device, len(slice.Spec.Devices))}
	for i := range slice.Spec.Devices {
		g.devices[i] = &slice.Spec.Devices[i]
	}
	return g
}

// digestOf returns a digest of the columns.
func (s *nodeDigests) digestOf(n *index.Node, columns []column) digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]byte, 0, 8*sha256.Size)
	for _, c := range columns {
		d, ok := s.columns[c]
		if !ok {
			d = s.digestColumn(n, c)
			s.columns[c] = d
		}
		all = append(all, d[:]...)
	}
	return sha256.Sum256(all)
}

// digestColumn digests one column.
func (s *nodeDigests) digestColumn(n *index.Node, c column) digest {
	var look []byte
	for i, g := range s.drivers {
		look = appendText(look, g.driver)
		look = binary.AppendUvarint(look, uint64(len(g.devices)))
		names := c.read.names(g.driver)
		for j, d := range g.devices {
			switch {
			case c.part == attributeValues:
				look = appendAttributes(look, d, names)
			case c.part == capacityValues:
				look = appendCapacities(look, d, names)
			case c.part == facts:
				look = appendFacts(look, d)
				if i == 0 {
					look = append(look, byte(n.Fit.Devices[j].Use.Shape))
				}
			case i == 0:
				look = appendPolicies(look, d)
			}
		}
	}
	return sha256.Sum256(look)
}

// appendFacts adds what counts about a device for every demand.
func appendFacts(look []byte, d *resourceapi.Device) []byte {
	look = append(look, map[bool]byte{true: '*', false: '.'}[isShared(d)])
	if err := unsupportedDevice(d); err != nil {
		look = append(look, '!')
		look = appendText(look, err.Error())
	}
	for _, t := range d.Taints {
		look = append(look, 't')
		look = appendText(look, t.Key)
		look = appendText(look, t.Value)
		look = appendText(look, string(t.Effect))
	}
	if isShared(d) {
		look = appendPolicies(look, d)
	}
	return append(look, ';')
}

// appendPolicies adds the capacities of a device and how they may be taken.
func appendPolicies(look []byte, d *resourceapi.Device) []byte {
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		c := d.Capacity[name]
		look = appendQuantity(appendText(append(look, 'c'), string(name)), &c.Value)
		p := c.RequestPolicy
		if p == nil {
			continue
		}
		look = appendBound(append(look, 'd'), p.Default)
		for i := range p.ValidValues {
			look = appendBound(append(look, 'v'), &p.ValidValues[i])
		}
		if r := p.ValidRange; r != nil {
			look = appendBound(appendBound(appendBound(append(look, 'r'), r.Min), r.Max), r.Step)
		}
	}
	return look
}

func appendBound(look []byte, q *resource.Quantity) []byte {
	if q == nil {
		return append(look, '-')
	}
	return appendQuantity(look, q)
}
