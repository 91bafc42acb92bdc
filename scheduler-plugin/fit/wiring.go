package fit

import (
	"math/bits"
	"sync"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Wiring is how the GPUs of a node reach each other, and the tables made of it. It is made once per
// pattern of links and shared by the nodes that are wired alike; its methods are safe for concurrent use.
// A nil Wiring knows of no links: any set of GPUs is as good as another.
type Wiring struct {
	gpus int
	// links are by pair of GPUs.
	links [][]strength
	// rings has the tables of a node of up to mostTabled GPUs; it makes them when first asked.
	rings func() *rings
}

// mostTabled is the number of GPUs up to which every set of them has an entry in the tables.
const mostTabled = 16

// strength is how close two GPUs are: bandwidth first, between equal ones the place on PCIe.
type strength int32

// bandwidthUnit is what one GB/s counts in a strength; the place on PCIe counts less.
const bandwidthUnit = 1024

// bandwidth returns the part of the strength that a program notices, in GB/s.
func (s strength) bandwidth() int32 { return int32(s / bandwidthUnit) }

// NewWiring returns the wiring of the GPUs, by position.
func NewWiring(gpus []gpu.GPU) *Wiring {
	w := &Wiring{gpus: len(gpus), links: make([][]strength, len(gpus))}
	for i := range gpus {
		w.links[i] = make([]strength, len(gpus))
		for j := range gpus {
			if i != j {
				w.links[i][j] = strengthOf(gpus[i], gpus[j], max(gpus[i].Link(j), gpus[j].Link(i)))
			}
		}
	}
	if len(gpus) <= mostTabled {
		w.rings = sync.OnceValue(func() *rings { return newRings(w.links) })
	}
	return w
}

// strengthOf returns the strength of a link. One that only one end reports counts; where none is known,
// the place on PCIe tells.
func strengthOf(a, b gpu.GPU, link gpu.Link) strength {
	place := pcie(a, b)
	if n := link.NVLinks(); n > 0 {
		return strength(n*nvlinkBandwidth*bandwidthUnit) + strength(place)
	}
	if link == gpu.LinkUnknown {
		link = place
	}
	return strength(pcieBandwidth(link)*bandwidthUnit) + strength(place)
}

// pcie returns the relation that the places of two GPUs on PCIe tell.
func pcie(a, b gpu.GPU) gpu.Link {
	switch {
	case a.PCIeRoot != "" && a.PCIeRoot == b.PCIeRoot:
		return gpu.LinkHostBridge
	case a.NUMA >= 0 && a.NUMA == b.NUMA:
		return gpu.LinkNode
	}
	return gpu.LinkSystem
}

// nvlinkBandwidth is that of one NVLink in GB/s per direction, of the older generations: the ratios
// between links of one node do not depend on it.
const nvlinkBandwidth = 25

// pcieBandwidth returns what two GPUs reach over PCIe, in GB/s: less with everything in between.
func pcieBandwidth(link gpu.Link) int {
	switch link {
	case gpu.LinkSwitch:
		return 20
	case gpu.LinkMultiSwitch:
		return 18
	case gpu.LinkHostBridge:
		return 16
	case gpu.LinkNode:
		return 14
	case gpu.LinkUnknown, gpu.LinkSystem, gpu.LinkSelf, gpu.LinkNVLink:
	}
	return 10
}

// gpuSet is a set of up to mostTabled GPUs of a node, by position.
type gpuSet uint32

// all yields the GPUs of the set in order.
func (s gpuSet) all(yield func(int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(bits.TrailingZeros32(uint32(s))) {
			return
		}
	}
}

func (s gpuSet) count() int { return bits.OnesCount32(uint32(s)) }

// tables returns the tables, nil when there are none.
func (w *Wiring) tables() *rings {
	if w == nil || w.rings == nil {
		return nil
	}
	return w.rings()
}

// Quality returns how good a set of GPUs, by position, is for programs that use all of them: the
// bandwidth of the weakest link in the best ring through them, over that of the best set of as many GPUs
// that the node could give when all of them are free. It is 1 for one GPU, and where no links are known.
func (w *Wiring) Quality(gpus []int) float64 {
	return float64(w.quality(gpus)) / perfect
}

// perfect is the quality of a set than which the node has no better one.
const perfect = 1023

func (w *Wiring) quality(gpus []int) int {
	tables := w.tables()
	if tables == nil {
		return w.roughQuality(gpus)
	}
	return tables.quality(setOf(gpus))
}
