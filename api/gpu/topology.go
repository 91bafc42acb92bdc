package gpu

import "slices"

// Link is how two GPUs of a node reach each other: over NVLink, or the lowest common ancestor on
// PCIe (nvmlDeviceGetTopologyCommonAncestor). Larger is closer.
type Link int

// The PCIe relations in ascending order of closeness. LinkNVLink+n stands for n NVLinks.
const (
	// LinkUnknown is the relation to a GPU that does not answer.
	LinkUnknown Link = iota
	// LinkSystem crosses NUMA nodes (SYS).
	LinkSystem
	// LinkNode stays in one NUMA node (NODE).
	LinkNode
	// LinkHostBridge crosses one host bridge (PHB).
	LinkHostBridge
	// LinkMultiSwitch crosses several PCIe switches (PXB).
	LinkMultiSwitch
	// LinkSwitch crosses one PCIe switch, or the two share a board (PIX, PSB).
	LinkSwitch
	// LinkSelf is the GPU itself.
	LinkSelf
	// LinkNVLink is the base of the NVLink relations.
	LinkNVLink
)

// MaxNVLinks is the largest number of NVLinks between two GPUs that the model tells apart.
const MaxNVLinks = 18

// NVLinks returns the relation of two GPUs joined by n NVLinks, 1 to MaxNVLinks; more count as
// MaxNVLinks.
func NVLinks(n int) Link { return LinkNVLink + Link(min(n, MaxNVLinks)) }

// NVLinks returns the number of NVLinks of the relation; 0 over PCIe.
func (l Link) NVLinks() int { return max(0, int(l-LinkNVLink)) }

// Islands returns, per GPU of the node, the number of its NVLink island: the smallest position of a
// GPU that it reaches over NVLinks, itself included, or -1 for a GPU without any. A link that only
// one of its ends reports counts.
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

// flood gives every GPU that from reaches the number of the island, and from itself if it reaches
// any.
func (n Node) flood(islands []int, from, island int) {
	for to := range n.GPUs {
		if islands[to] != island && n.nvlinked(from, to) {
			islands[from], islands[to] = island, island
			n.flood(islands, to, island)
		}
	}
}

func (n Node) nvlinked(a, b int) bool {
	return n.GPUs[a].Link(b).NVLinks() > 0 || n.GPUs[b].Link(a).NVLinks() > 0
}

// Link returns the relation to the GPU with the index; LinkUnknown when it was never read.
func (g GPU) Link(index int) Link {
	if index < 0 || index >= len(g.Links) {
		return LinkUnknown
	}
	return g.Links[index]
}

// ResetGroup returns the names of the GPUs that are reset together with the one named, itself included, in order of index; none when it is
// not on the node. All of them must be idle for that. From Ampere on a GPU is reset alone; before, along with every GPU that it has NVLinks
// to, directly or through others. Source: nvidia-smi(1), --gpu-reset.
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
