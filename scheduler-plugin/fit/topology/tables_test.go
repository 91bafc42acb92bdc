package topology

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// drawLinks returns a symmetric table of a few strengths.
func drawLinks(t *rapid.T) [][]strength {
	n := rapid.IntRange(2, 8).Draw(t, "GPUs")
	links := make([][]strength, n)
	for i := range links {
		links[i] = make([]strength, n)
	}
	for i := range n {
		for j := range i {
			links[i][j] = strength(rapid.IntRange(1, 5).Draw(t, "link")) * bandwidthUnit
			links[j][i] = links[i][j]
		}
	}
	return links
}

// weakestByOrder tries every order in which a ring can go through the GPUs.
func weakestByOrder(links [][]strength, gpus []int) strength {
	if len(gpus) < 2 {
		return math.MaxInt32
	}
	best := strength(0)
	var try func(order []int)
	try = func(order []int) {
		if len(order) == len(gpus) {
			weakest := links[order[len(order)-1]][order[0]]
			for i := 1; i < len(order); i++ {
				weakest = min(weakest, links[order[i-1]][order[i]])
			}
			best = max(best, weakest)
			return
		}
		for _, g := range gpus {
			if !slices.Contains(order, g) {
				try(append(slices.Clone(order), g))
			}
		}
	}
	try(gpus[:1])
	return best
}

// offerByPartition tries every way to give out the GPUs in teams of k.
func offerByPartition(links [][]strength, free Set, k int, best strength) int64 {
	most := int64(0)
	for set := range Set(1) << len(links) {
		if set&^free != 0 || set.Count() != k {
			continue
		}
		quality := int64(TeamUnit) * int64(weakestByOrder(links, set.Members())) / int64(best)
		// The set with the first free GPU of a partition comes first, so that each partition is tried once.
		rest := free &^ set &^ (set&-set - 1)
		most = max(most, int64(k)*quality+offerByPartition(links, rest, k, best))
	}
	return most
}

// TestTablesMatchBruteForce compares the tables with brute force.
func TestTablesMatchBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		links := drawLinks(t)
		tables := newTables(links)
		free := Set(rapid.IntRange(0, 1<<len(links)-1).Draw(t, "free"))
		best := make([]strength, len(links)+1)
		for set := range Set(1) << len(links) {
			weakest := weakestByOrder(links, set.Members())
			if tables.weakest[set] != weakest {
				t.Fatalf("weakest link of %b: %d, want %d", set, tables.weakest[set], weakest)
			}
			best[set.Count()] = max(best[set.Count()], weakest)
		}
		want := int64(0)
		for _, k := range teamSizes() {
			if k <= len(links) {
				want += offerByPartition(links, free, k, best[k])
			}
		}
		if tables.residual[free] != want {
			t.Fatalf("residual of %b: %d, want %d", free, tables.residual[free], want)
		}
		for k := 1; k <= free.Count(); k++ {
			chosen := tables.BestSet(free, k)
			if chosen&^free != 0 || chosen.Count() != k {
				t.Fatalf("%d of %b: %b", k, free, chosen)
			}
			for set := range Set(1) << len(links) {
				if set&^free == 0 && set.Count() == k && tables.compareSets(free, set, chosen) < 0 {
					t.Fatalf("%d of %b: chose %b, %b is better", k, free, chosen, set)
				}
			}
			if again := tables.BestSet(free, k); again != chosen {
				t.Fatalf("%d of %b: chose %b, then %b", k, free, chosen, again)
			}
		}
	})
}

func TestSubsets(t *testing.T) {
	t.Parallel()
	for of := range Set(1 << 6) {
		for k := range 7 {
			var want []Set
			for set := range Set(1 << 6) {
				if set&^of == 0 && set.Count() == k {
					want = append(want, set)
				}
			}
			if got := slices.Collect(of.Subsets(k)); !slices.Equal(got, want) {
				t.Fatalf("%d of %b: %b, want %b", k, of, got, want)
			}
		}
	}
}

// TestStrength orders links by bandwidth, then by PCIe distance.
func TestStrength(t *testing.T) {
	t.Parallel()
	at := func(root string, numa int) gpu.GPU { return gpu.GPU{PCIeRoot: root, NUMA: numa} }
	ascending := []strength{
		strengthOf(at("", -1), at("", -1), gpu.LinkUnknown),
		strengthOf(at("a", 0), at("b", 0), gpu.LinkUnknown),
		strengthOf(at("a", 0), at("a", 0), gpu.LinkUnknown),
		strengthOf(at("a", 0), at("a", 0), gpu.LinkMultiSwitch),
		strengthOf(at("a", 0), at("a", 0), gpu.LinkSwitch),
		strengthOf(at("a", 0), at("b", 1), gpu.NVLinks(1)),
		strengthOf(at("a", 0), at("b", 0), gpu.NVLinks(1)),
		strengthOf(at("a", 0), at("a", 0), gpu.NVLinks(1)),
		strengthOf(at("a", 0), at("b", 1), gpu.NVLinks(2)),
	}
	if !slices.IsSorted(ascending) || len(slices.Compact(ascending)) != 9 {
		t.Errorf("not ascending: %v", ascending)
	}
	if known, guessed := strengthOf(at("a", 0), at("b", 1), gpu.LinkSystem), strengthOf(at("a", 0), at("b", 1), gpu.LinkUnknown); known != guessed {
		t.Errorf("PCIe distance %d, link %d", guessed, known)
	}
}
