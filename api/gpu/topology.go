package gpu

import "slices"

// Link is the connection of two GPUs of a node: NVLink, or else the lowest common ancestor on PCIe
// (nvmlDeviceGetTopologyCommonAncestor). Larger values are closer.
type Link int

// The PCIe connections in ascending order of closeness; in parentheses their names in nvidia-smi topo -m. LinkNVLink+n is a
// connection of n NVLinks.
const (
	// LinkUnknown is the connection to a GPU that does not respond.
	LinkUnknown Link = iota
	// LinkSystem crosses NUMA nodes (SYS).
	LinkSystem
	// LinkNode crosses host bridges within a NUMA node (NODE).
	LinkNode
	// LinkHostBridge crosses one host bridge (PHB).
	LinkHostBridge
	// LinkMultiSwitch crosses several PCIe switches (PXB).
	LinkMultiSwitch
	// LinkSwitch crosses one PCIe switch, or the GPUs share a board (PIX, PSB).
	LinkSwitch
	// LinkSelf is a GPU's connection to itself.
	LinkSelf
	// LinkNVLink is the base of the NVLink connections, and not a connection.
	LinkNVLink
)

// MaxNVLinks is the largest number of NVLinks between two GPUs that a Link distinguishes.
const MaxNVLinks = 18

// NVLinks returns the connection of n NVLinks. n must be at least 1; more than MaxNVLinks count as MaxNVLinks.
func NVLinks(n int) Link { return LinkNVLink + Link(min(n, MaxNVLinks)) }

// NVLinks returns the number of NVLinks of the connection; 0 over PCIe.
func (l Link) NVLinks() int { return max(0, int(l-LinkNVLink)) }

// Islands returns the link island of each GPU of the node. An island is a set of GPUs that reach each other over NVLinks,
// directly or through other GPUs; its number is the smallest index of its GPUs. A GPU without NVLinks has -1.
//
// A link counts if one end reports it, because the other end can be lost. Example: five GPUs with the links 0-2 and 1-3 are on
// the islands 0, 1, 0, 1 and -1.
func (n Node) Islands() []int {
	islands := make([]int, len(n.GPUs))
	for i := range islands {
		islands[i] = -1
	}
	for i := range n.GPUs {
		if islands[i] < 0 {
			n.flood(islands, i, i)
		}
	}
	return islands
}

// flood assigns the island to all GPUs that are reachable from the given one, and to that GPU if it reaches any.
func (n Node) flood(islands []int, from, island int) {
	for to := range n.GPUs {
		if islands[to] != island && n.nvlinked(from, to) {
			islands[from], islands[to] = island, island
			n.flood(islands, to, island)
		}
	}
}

// nvlinked reports whether a and b, given by index, are directly connected by NVLinks.
func (n Node) nvlinked(a, b int) bool {
	return n.GPUs[a].Link(b).NVLinks() > 0 || n.GPUs[b].Link(a).NVLinks() > 0
}

// Link returns the connection to the GPU with the index; LinkUnknown if it was not read.
func (g GPU) Link(index int) Link {
	if index < 0 || index >= len(g.Links) {
		return LinkUnknown
	}
	return g.Links[index]
}

// ResetGroup returns the names of the GPUs that must be reset together with the named one, including it, in order of index;
// none if it is not on the node. All of them must be idle for a reset.
//
// From Ampere on a GPU is reset alone. Earlier GPUs are reset together with all GPUs of their link island. Source:
// nvidia-smi(1), --gpu-reset.
func (n Node) ResetGroup(name string) []string {
	at := slices.IndexFunc(n.GPUs, func(g GPU) bool { return g.Name() == name })
	if at < 0 {
		return nil
	}
	islands := n.Islands()
	if n.GPUs[at].ComputeMajor >= 8 || islands[at] < 0 {
		return []string{name}
	}
	var group []string
	for i, g := range n.GPUs {
		if islands[i] == islands[at] {
			group = append(group, g.Name())
		}
	}
	return group
}
