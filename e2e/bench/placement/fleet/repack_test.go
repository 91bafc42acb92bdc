package fleet

import "testing"

// TestRepack compares the closed form with all arrangements on one and two GPUs.
func TestRepack(t *testing.T) {
	t.Parallel()
	s := states(t, "h100-80")
	one := map[Counts]bool{}
	for _, held := range s.Held {
		var n Counts
		for _, p := range held.Placements() {
			for profile := range s.Profiles {
				if s.Profiles[profile].ID == p.Profile {
					n[profile]++
				}
			}
		}
		one[n] = true
	}
	two := map[Counts]bool{}
	for a := range one {
		for b := range one {
			sum := a
			for i := range sum {
				sum[i] += b[i]
			}
			two[sum] = true
		}
	}
	for gpus, possible := range map[int]map[Counts]bool{1: one, 2: two} {
		each(Counts{15, 9, 7, 5, 3, 3}, func(n Counts) {
			if got := n.fit(gpus); got != possible[n] {
				t.Fatalf("%v on %d GPUs: got %v, want %v", n, gpus, got, possible[n])
			}
		})
	}
}

// each calls f with all counts up to the limits.
func each(limits Counts, f func(Counts)) {
	var n Counts
	for {
		f(n)
		i := 0
		for ; i < len(n) && n[i] == limits[i]; i++ {
			n[i] = 0
		}
		if i == len(n) {
			return
		}
		n[i]++
	}
}

func TestRepackReleases(t *testing.T) {
	t.Parallel()
	r := NewRepack(1)
	if !r.Place(p4g) || !r.Place(p3g) || r.Place(p1g) {
		t.Fatal("a GPU does not hold exactly 4g and 3g")
	}
	r.Release(p4g)
	if r.Place(p7g) || !r.Place(p3g) {
		t.Fatal("after 4g has left, 3g fits in its place and 7g does not")
	}
}
