package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// pair is two GPUs by index, the smaller first.
type pair struct{ a, b int }

// activeLink is one active NVLink, from the GPU with the index from to a PCI address.
type activeLink struct {
	from   int
	remote string
}

// nvlinks reads the numbers of the GPU's NVLinks, active or not.
func nvlinks(a *calls, d nvml.Device) []int {
	var all []int
	for link := range nvml.NVLINK_MAX_LINKS {
		if _, has := nvlinkState(a, d, link); has {
			all = append(all, link)
		}
	}
	return all
}

func nvlinkState(a *calls, d nvml.Device, link int) (nvml.EnableState, bool) {
	return queryExtra(a, "nvmlDeviceGetNvLinkState", func() (nvml.EnableState, nvml.Return) { return d.GetNvLinkState(link) }, nvml.ERROR_INVALID_ARGUMENT)
}

// activeNVLinks reads which of the GPU's NVLinks are active.
func (f *gpuInfo) activeNVLinks(a *calls) []int {
	var up []int
	for _, link := range f.links {
		if state, _ := nvlinkState(a, f.handle, link); state == nvml.FEATURE_ENABLED {
			up = append(up, link)
		}
	}
	return up
}

// activeLinks reads the GPU's active NVLinks and their other ends. A link whose end has no PCI address on this machine
// leads to a switch of another machine. The end of a link that is down cannot be read.
func (f *gpuInfo) activeLinks(a *calls) []activeLink {
	var wires []activeLink
	for _, link := range f.activeNVLinks(a) {
		if _, known := f.remotes[link]; !known {
			if remote, has := queryExtra(a, "nvmlDeviceGetNvLinkRemotePciInfo", func() (nvml.PciInfo, nvml.Return) {
				return f.handle.GetNvLinkRemotePciInfo(link)
			}, nvml.ERROR_INVALID_ARGUMENT); has {
				f.remotes[link] = address(remote)
			}
		}
		wires = append(wires, activeLink{from: f.gpu.Index, remote: f.remotes[link]})
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
