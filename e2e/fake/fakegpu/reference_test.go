package fakegpu

import (
	"math/rand/v2"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The reference model: the answers of MIG hardware, written by hand from NVIDIA's MIG user guide and
// published nvidia-smi dumps. It shares no code and no table with the catalogue or the engine, so that
// the walk compares two independent implementations.

// refRules are the rules of one family of GPUs.
type refRules struct {
	slices   int
	media    int // decoders that instances share; 0 where they are never the limit
	profiles map[int]refProfile
	// computes are the legal starts of the compute profile in a GPU instance, nil if it has none such.
	computes func(gi refProfile, id int) (size int, starts []int)
}

type refProfile struct {
	size, compute, most int
	starts              []int
	ofa, media          int
	double              bool // one compute slice with the memory of two and more SMs than one
}

// sevenSlices are A100, H100 and newer data center GPUs: eight memory slices, seven compute slices.
func sevenSlices(doubleHasTwoComputes bool) refRules {
	return refRules{
		slices: 8,
		profiles: map[int]refProfile{
			19: {size: 1, compute: 1, most: 7, starts: []int{0, 1, 2, 3, 4, 5, 6}},
			20: {size: 1, compute: 1, most: 1, starts: []int{0, 1, 2, 3, 4, 5, 6}, ofa: 1},
			15: {size: 2, compute: 1, most: 4, starts: []int{0, 2, 4, 6}, double: doubleHasTwoComputes},
			14: {size: 2, compute: 2, most: 3, starts: []int{0, 2, 4}},
			9:  {size: 4, compute: 3, most: 2, starts: []int{0, 4}},
			5:  {size: 4, compute: 4, most: 1, starts: []int{0}},
			0:  {size: 8, compute: 7, most: 1, starts: []int{0}, ofa: 1},
		},
		computes: func(gi refProfile, id int) (int, []int) {
			switch {
			case id == 0:
				return 1, []int{0, 1, 2, 3, 4, 5, 6}[:gi.compute]
			case id == 1 && gi.compute >= 2:
				return 2, map[int][]int{2: {0}, 3: {0}, 4: {0, 2}, 7: {0, 2, 4}}[gi.compute]
			case id == 2 && gi.compute == 3:
				return 3, []int{0}
			case id == 2 && gi.compute == 7:
				return 3, []int{0, 4}
			case id == 3 && gi.compute >= 4:
				return 4, []int{0}
			case id == 4 && gi.compute == 7:
				return 7, []int{0}
			case id == 7 && gi.double:
				return 1, []int{0}
			}
			return 0, nil
		},
	}
}

func quarterComputes(gi refProfile, id int) (int, []int) {
	switch {
	case id == 0:
		return 1, []int{0, 1, 2, 3}[:gi.compute]
	case id == 1 && gi.compute == 2:
		return 2, []int{0}
	case id == 1 && gi.compute == 4:
		return 2, []int{0, 2}
	case id == 3 && gi.compute == 4:
		return 4, []int{0}
	}
	return 0, nil
}

// a30 has four slices of each kind.
func a30Rules() refRules {
	return refRules{
		slices: 4,
		profiles: map[int]refProfile{
			14: {size: 1, compute: 1, most: 4, starts: []int{0, 1, 2, 3}},
			21: {size: 1, compute: 1, most: 1, starts: []int{0, 1, 2, 3}, ofa: 1},
			5:  {size: 2, compute: 2, most: 2, starts: []int{0, 2}},
			6:  {size: 2, compute: 2, most: 1, starts: []int{0, 2}, ofa: 1},
			0:  {size: 4, compute: 4, most: 1, starts: []int{0}, ofa: 1},
		},
		computes: quarterComputes,
	}
}

// rtxPro6000 has twelve memory slices in quarters of three; four decoders are shared.
func rtxPro6000Rules() refRules {
	quarters, halves, whole := []int{0, 3, 6, 9}, []int{0, 6}, []int{0}
	return refRules{
		slices: 12,
		media:  4,
		profiles: map[int]refProfile{
			14: {size: 3, compute: 1, most: 4, starts: quarters, media: 1},
			21: {size: 3, compute: 1, most: 1, starts: quarters, media: 1, ofa: 1},
			47: {size: 3, compute: 1, most: 4, starts: quarters, media: 1},
			65: {size: 3, compute: 1, most: 1, starts: quarters, media: 4, ofa: 1},
			67: {size: 3, compute: 1, most: 4, starts: quarters},
			5:  {size: 6, compute: 2, most: 2, starts: halves, media: 2},
			35: {size: 6, compute: 2, most: 2, starts: halves, media: 2},
			64: {size: 6, compute: 2, most: 1, starts: halves, media: 4, ofa: 1},
			66: {size: 6, compute: 2, most: 2, starts: halves},
			0:  {size: 12, compute: 4, most: 1, starts: whole, media: 4, ofa: 1},
			32: {size: 12, compute: 4, most: 1, starts: whole, media: 4, ofa: 1},
		},
		computes: quarterComputes,
	}
}

// refGPU is one GPU with MIG on.
type refGPU struct {
	rules     refRules
	instances []*refInstance
}

type refInstance struct {
	profile, start int
	computes       []refCompute
}

type refCompute struct {
	id, profile, start, size int
}

// fits returns NVML's answer to one more instance at a start.
func (g *refGPU) fits(id, start, size int) nvml.Return {
	p, known := g.rules.profiles[id]
	if !known || p.size != size || !slices.Contains(p.starts, start) {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	same, ofa, media := 1, p.ofa, p.media
	for _, i := range g.instances {
		held := g.rules.profiles[i.profile]
		if start < i.start+held.size && i.start < start+size {
			return nvml.ERROR_INSUFFICIENT_RESOURCES
		}
		ofa += held.ofa
		media += held.media
		if i.profile == id {
			same++
		}
	}
	if same > p.most || ofa > 1 || g.rules.media > 0 && media > g.rules.media {
		return nvml.ERROR_INSUFFICIENT_RESOURCES
	}
	return nvml.SUCCESS
}

// capacity counts how many more of a profile fit, by creating them.
func (g *refGPU) capacity(id int) int {
	trial := &refGPU{rules: g.rules, instances: slices.Clone(g.instances)}
	count := 0
	for _, start := range g.rules.profiles[id].starts {
		if trial.fits(id, start, g.rules.profiles[id].size) == nvml.SUCCESS {
			trial.instances = append(trial.instances, &refInstance{profile: id, start: start})
			count++
		}
	}
	return count
}

// place returns where NVML places a compute instance by default: at the first start that is free.
func (g *refGPU) place(i *refInstance, id int) (refCompute, nvml.Return) {
	size, starts := g.rules.computes(g.rules.profiles[i.profile], id)
	if starts == nil {
		return refCompute{}, nvml.ERROR_NOT_SUPPORTED
	}
	for _, start := range starts {
		if !i.overlaps(start, size) {
			return refCompute{id: i.freeID(), profile: id, start: start, size: size}, nvml.SUCCESS
		}
	}
	return refCompute{}, nvml.ERROR_INSUFFICIENT_RESOURCES
}

func (i *refInstance) overlaps(start, size int) bool {
	return slices.ContainsFunc(i.computes, func(c refCompute) bool { return start < c.start+c.size && c.start < start+size })
}

func (i *refInstance) freeID() int {
	for id := 0; ; id++ {
		if !slices.ContainsFunc(i.computes, func(c refCompute) bool { return c.id == id }) {
			return id
		}
	}
}

// anyProfile picks a profile, sometimes one that does not exist, and a placement, sometimes illegal.
func (g *refGPU) anyProfile(random *rand.Rand) (id, start, size int) {
	var ids []int
	for id := range g.rules.profiles {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	id = append(ids, 1, 99)[random.IntN(len(ids)+2)]
	p := g.rules.profiles[id]
	start, size = random.IntN(g.rules.slices), p.size
	if len(p.starts) > 0 && random.IntN(4) > 0 {
		start = p.starts[random.IntN(len(p.starts))]
	}
	if random.IntN(16) == 0 {
		size++
	}
	return id, start, size
}
