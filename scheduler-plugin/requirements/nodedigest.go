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

// digest is a hash of values. Equal digests mean equal values.
type digest [sha256.Size]byte

// nodeDigestCache holds the digests of every node, for all requirements.
type nodeDigestCache struct {
	mu    sync.Mutex
	nodes map[string]*nodeDigests
}

// nodeDigests are the digests of the devices of one node, for one content of the node: for each column, the values of
// all devices. Nodes with equal digests in the columns that requirements read have equal results. In most clusters many
// nodes are equal, so that requirements are evaluated once for all of them.
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

// column is a part of what is published of each device.
type column struct {
	part columnPart
	read readField
}

type columnPart int

const (
	attributeValues columnPart = iota
	capacityValues
	// facts are what every evaluation depends on; policies what requests for capacity depend on.
	facts
	policies
)

// forNode returns the digests of the node.
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

func (s *nodeDigestCache) drop(node string) {
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

// devicesOfSlice returns the devices of a ResourceSlice.
func devicesOfSlice(slice *resourceapi.ResourceSlice) driverDevices {
	g := driverDevices{driver: slice.Spec.Driver, devices: make([]*resourceapi.Device, len(slice.Spec.Devices))}
	for i := range slice.Spec.Devices {
		g.devices[i] = &slice.Spec.Devices[i]
	}
	return g
}

// digestOf returns the digest of the columns.
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

// digestColumn returns the digest of one column.
func (s *nodeDigests) digestColumn(n *index.Node, c column) digest {
	var key []byte
	for i, g := range s.drivers {
		key = appendText(key, g.driver)
		key = binary.AppendUvarint(key, uint64(len(g.devices)))
		names := c.read.names(g.driver)
		for j, d := range g.devices {
			switch {
			case c.part == attributeValues:
				key = appendAttributes(key, d, names)
			case c.part == capacityValues:
				key = appendCapacities(key, d, names)
			case c.part == facts:
				key = appendFacts(key, d)
				if i == 0 {
					key = append(key, byte(n.Fit.Devices[j].Use.Shape))
				}
			case i == 0:
				key = appendPolicies(key, d)
			}
		}
	}
	return sha256.Sum256(key)
}

// appendFacts appends what every evaluation of the device depends on.
func appendFacts(key []byte, d *resourceapi.Device) []byte {
	key = append(key, map[bool]byte{true: '*', false: '.'}[isShared(d)])
	if err := unsupportedDevice(d); err != nil {
		key = append(key, '!')
		key = appendText(key, err.Error())
	}
	for _, t := range d.Taints {
		key = append(key, 't')
		key = appendText(key, t.Key)
		key = appendText(key, t.Value)
		key = appendText(key, string(t.Effect))
	}
	if isShared(d) {
		key = appendPolicies(key, d)
	}
	return append(key, ';')
}

// appendPolicies appends the capacities of a device with their request policies.
func appendPolicies(key []byte, d *resourceapi.Device) []byte {
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		c := d.Capacity[name]
		key = appendQuantity(appendText(append(key, 'c'), string(name)), &c.Value)
		p := c.RequestPolicy
		if p == nil {
			continue
		}
		key = appendBound(append(key, 'd'), p.Default)
		for i := range p.ValidValues {
			key = appendBound(append(key, 'v'), &p.ValidValues[i])
		}
		if r := p.ValidRange; r != nil {
			key = appendBound(appendBound(appendBound(append(key, 'r'), r.Min), r.Max), r.Step)
		}
	}
	return key
}

func appendBound(key []byte, q *resource.Quantity) []byte {
	if q == nil {
		return append(key, '-')
	}
	return appendQuantity(key, q)
}
