package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// nvlinkPort is one NVLink of a GPU. remote is the PCI address at its other end.
type nvlinkPort struct {
	link   int
	remote string
}

// pair is two GPUs by index, the smaller first.
type pair struct{ a, b int }

// activeLink is one active NVLink, from the GPU with the index from to a PCI address.
type activeLink struct {
	from   int
	remote string
}

// nvlinkPorts reads the NVLinks of the GPU, active or not, and their remote ends. A link whose end has no PCI address on
// this machine leads to a switch of another machine.
func nvlinkPorts(a *calls, d nvml.Device) []nvlinkPort {
	var all []nvlinkPort
	for link := range nvml.NVLINK_MAX_LINKS {
		_, has := queryIndexed(a, "nvmlDeviceGetNvLinkState", func() (nvml.EnableState, nvml.Return) { return d.GetNvLinkState(link) })
		if !has {
			continue
		}
		remote, known := queryIndexed(a, "nvmlDeviceGetNvLinkRemotePciInfo", func() (nvml.PciInfo, nvml.Return) { return d.GetNvLinkRemotePciInfo(link) })
		p := nvlinkPort{link: link}
		if known {
			p.remote = address(remote)
		}
		all = append(all, p)
	}
	return all
}

// activeLinks reads which of the GPU's NVLinks are active.
func (f *gpuInfo) activeLinks(a *calls) []activeLink {
	var wires []activeLink
	for _, p := range f.ports {
		state, _ := queryOptional(a, "nvmlDeviceGetNvLinkState", func() (nvml.EnableState, nvml.Return) { return f.handle.GetNvLinkState(p.link) })
		if state == nvml.FEATURE_ENABLED {
			wires = append(wires, activeLink{from: f.gpu.Index, remote: p.remote})
		}
	}
	return wires
}

// linkMatrix returns the relation of every two GPUs, given by PCI address in order of index: the number of NVLinks if
// there are any, else the PCIe relation. Links that end at a switch connect all GPUs with such links; two GPUs share the
// smaller of their two numbers. A GPU with an empty address has never responded.
func linkMatrix(addresses []string, wires []activeLink, bus map[pair]gpu.Link) [][]gpu.Link {
	index := map[string]int{}
	for i, address := range addresses {
		if address != "" {
			index[address] = i
		}
	}
	direct, switched := map[pair]int{}, make([]int, len(addresses))
	for _, w := range wires {
		if to, isGPU := index[w.remote]; isGPU {
			direct[pair{w.from, to}]++
		} else {
			switched[w.from]++
		}
	}
	links := make([][]gpu.Link, len(addresses))
	for a := range addresses {
		links[a] = make([]gpu.Link, len(addresses))
		for b := range addresses {
			links[a][b] = linkBetween(a, b, direct[pair{a, b}]+min(switched[a], switched[b]), bus)
		}
	}
	return links
}

func linkBetween(a, b, nvlinks int, bus map[pair]gpu.Link) gpu.Link {
	switch {
	case a == b:
		return gpu.LinkSelf
	case nvlinks > 0:
		return gpu.NVLinks(nvlinks)
	}
	return bus[pair{min(a, b), max(a, b)}]
}

// busLink converts NVML's common ancestor on PCIe into the model's relation.
func busLink(level nvml.GpuTopologyLevel) gpu.Link {
	return map[nvml.GpuTopologyLevel]gpu.Link{
		nvml.TOPOLOGY_INTERNAL:   gpu.LinkSwitch,
		nvml.TOPOLOGY_SINGLE:     gpu.LinkSwitch,
		nvml.TOPOLOGY_MULTIPLE:   gpu.LinkMultiSwitch,
		nvml.TOPOLOGY_HOSTBRIDGE: gpu.LinkHostBridge,
		nvml.TOPOLOGY_NODE:       gpu.LinkNode,
		nvml.TOPOLOGY_SYSTEM:     gpu.LinkSystem,
	}[level]
}
