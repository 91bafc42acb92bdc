package topology

import (
	"sync"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Wiring holds the links between the GPUs of a node and the tables derived from them. It is created once per pattern
// of links and shared by all nodes with that pattern. Its methods are safe for concurrent use. A nil Wiring has no
// information about links: all sets of GPUs are equally good.
type Wiring struct {
	gpus int
	// links holds the strength of the link between two GPUs, by their positions. It is symmetric.
	links [][]strength
	// tables creates the tables on first use. It is nil for more than MaxTabled GPUs.
	tables func() *Tables
}

// MaxTabled is the largest number of GPUs of a node for which Tables exist: they have an entry for every set of GPUs.
const MaxTabled = 16

// strength orders links: by bandwidth, and links of equal bandwidth by the distance of the two GPUs on PCIe.
type strength int32

// bandwidthUnit is the strength of one GB/s. It is larger than every PCIe distance.
const bandwidthUnit = 1024

// bandwidth returns the bandwidth in GB/s. Two links of equal bandwidth make no difference to a program.
func (s strength) bandwidth() int32 { return int32(s / bandwidthUnit) }

// NewWiring returns the wiring of the GPUs of a node.
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
	if len(gpus) <= MaxTabled {
		w.tables = sync.OnceValue(func() *Tables { return newTables(w.links) })
	}
	return w
}

// GPUs returns the number of GPUs. A Wiring is only valid for nodes with that number.
func (w *Wiring) GPUs() int {
	if w == nil {
		return 0
	}
	return w.gpus
}

// Tables returns the tables, nil for a nil Wiring and for more than MaxTabled GPUs.
func (w *Wiring) Tables() *Tables {
	if w == nil || w.tables == nil {
		return nil
	}
	return w.tables()
}

// PerfectQuality is the QualityScore of the best set of its size.
const PerfectQuality = 1023

// QualityScore returns how good a set of GPUs, by position, is for a program that uses all of them: the bandwidth of
// the weakest link in the best ring through the set, relative to the best set of the same size on the node with all
// GPUs idle. The result is between 0 and PerfectQuality, which is also the result for one GPU and for a nil Wiring.
func (w *Wiring) QualityScore(gpus []int) int {
	tables := w.Tables()
	if tables == nil {
		return w.pairQuality(gpus)
	}
	return tables.quality(SetOf(gpus))
}

// Quality returns QualityScore as a fraction between 0 and 1.
func (w *Wiring) Quality(gpus []int) float64 {
	return float64(w.QualityScore(gpus)) / PerfectQuality
}

// strengthOf returns the strength of a link. If the link is unknown, it is inferred from the positions on PCIe.
func strengthOf(a, b gpu.GPU, link gpu.Link) strength {
	place := pcieLink(a, b)
	if n := link.NVLinks(); n > 0 {
		return strength(n*nvlinkBandwidth*bandwidthUnit) + strength(place)
	}
	if link == gpu.LinkUnknown {
		link = place
	}
	return strength(pcieBandwidth(link)*bandwidthUnit) + strength(place)
}

// pcieLink returns the link that the PCIe roots and NUMA nodes of two GPUs imply.
func pcieLink(a, b gpu.GPU) gpu.Link {
	switch {
	case a.PCIeRoot != "" && a.PCIeRoot == b.PCIeRoot:
		return gpu.LinkHostBridge
	case a.NUMA >= 0 && a.NUMA == b.NUMA:
		return gpu.LinkNode
	}
	return gpu.LinkSystem
}

// nvlinkBandwidth is the bandwidth of one NVLink in GB/s per direction, of the older generations. Only ratios between
// links of one node are used, which are the same for all generations.
const nvlinkBandwidth = 25

// pcieBandwidth returns the bandwidth that two GPUs reach over PCIe in GB/s. Every bridge in between costs some.
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
