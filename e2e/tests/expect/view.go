package expect

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// compareContainer returns what of one container is not as expected.
func compareContainer(v View, c Container) []string {
	var complaints []string
	if v.Log != "" && !strings.Contains(c.Log, v.Log) {
		complaints = append(complaints, fmt.Sprintf("expected %q in the log, it says %q", v.Log, lastLines(c.Log)))
	}
	for _, grant := range c.Grants {
		if v.TimeSlice != "" && grant.TimeSlice != v.TimeSlice {
			complaints = append(complaints, fmt.Sprintf("expected the time slice %s on %s, the claim's status says %q", v.TimeSlice, grant, grant.TimeSlice))
		}
	}
	complaints = append(complaints, used(v, c)...)
	report, ok := ParseReport(c.Log)
	if !ok {
		if v.sees() {
			complaints = append(complaints, fmt.Sprintf("no list of devices in the log, it says %q", lastLines(c.Log)))
		}
		return complaints
	}
	if v.Watches != nil && len(report.GPUs) != *v.Watches {
		complaints = append(complaints, fmt.Sprintf("expected to watch %d GPUs, sees %d", *v.Watches, len(report.GPUs)))
	}
	complaints = append(complaints, view(v, measured(report.Devices(), c.Grants))...)
	return append(complaints, granted(c.Grants, report)...)
}

// measured returns the devices with the memory that the ResourceSlice publishes for those whose report has none.
func measured(seen []Seen, grants []Grant) []Seen {
	for i, s := range seen {
		if at := slices.IndexFunc(grants, func(g Grant) bool { return g.Is(s) }); at >= 0 && s.MemoryMiB == 0 {
			seen[i].MemoryMiB = grants[at].Memory >> 20
		}
	}
	return seen
}

// view holds what a container sees against what it should see.
func view(v View, seen []Seen) []string {
	var complaints []string
	if v.counts() {
		want := 0
		if v.GPUs != nil {
			want = *v.GPUs
		}
		var profiles []string
		whole := 0
		for _, s := range seen {
			if s.Profile == "" {
				whole++
			} else {
				profiles = append(profiles, s.Profile)
			}
		}
		if whole != want {
			complaints = append(complaints, fmt.Sprintf("expected to see %d whole GPUs, sees %d", want, whole))
		}
		if !matchAll(v.MIG, profiles) {
			complaints = append(complaints, fmt.Sprintf("expected to see MIG devices %q, sees %q", v.MIG, profiles))
		}
	}
	for _, s := range seen {
		if v.Memory != nil && s.MemoryMiB<<20 < v.Memory.Value() {
			complaints = append(complaints, fmt.Sprintf("expected devices with at least %s, sees %s", v.Memory, s))
		}
	}
	return complaints
}

// matchAll reports whether patterns and names pair off, each pattern with one name. An exact name takes
// its own first, so that a wildcard does not take it away.
func matchAll(patterns, names []string) bool {
	rest := slices.Clone(names)
	exactFirst := slices.Clone(patterns)
	slices.SortStableFunc(exactFirst, func(a, b string) int { return strings.Count(a, "*") - strings.Count(b, "*") })
	for _, pattern := range exactFirst {
		i := slices.IndexFunc(rest, func(name string) bool { ok, _ := path.Match(pattern, name); return ok })
		if i < 0 {
			return false
		}
		rest = slices.Delete(rest, i, i+1)
	}
	return len(rest) == 0
}

// granted holds what a container sees against what the API server says it was given: exactly that.
func granted(grants []Grant, report Report) []string {
	var complaints []string
	rest := slices.DeleteFunc(report.Devices(), func(s Seen) bool {
		return slices.ContainsFunc(grants, func(g Grant) bool { return g.watches(s) })
	})
	for i, grant := range grants {
		if grant.Shape == monitor {
			if _, watched := grant.Watched(report); !watched {
				complaints = append(complaints, fmt.Sprintf("was given %s (%s), does not see it", grant, grant.identity()))
			}
			continue
		}
		if slices.ContainsFunc(grants[:i], grant.shares) {
			continue // two shares of one GPU
		}
		i := slices.IndexFunc(rest, grant.Is)
		if i < 0 {
			complaints = append(complaints, fmt.Sprintf("was given %s (%s), does not see it", grant, grant.identity()))
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	for _, s := range rest {
		complaints = append(complaints, fmt.Sprintf("sees %s, was not given it", s))
	}
	return complaints
}

// Watched returns the GPU that the grant allows to watch as the container shows it; false when it does not,
// or the grant is of another kind.
func (g Grant) Watched(report Report) (SeenGPU, bool) {
	i := slices.IndexFunc(report.GPUs, func(seen SeenGPU) bool { return seen.UUID == g.UUID })
	if g.Shape != monitor || i < 0 {
		return SeenGPU{}, false
	}
	return report.GPUs[i], true
}

// watches reports whether the device is, or lies on, a GPU that the grant allows to watch. Others carve
// and use such a GPU meanwhile.
func (g Grant) watches(s Seen) bool {
	return g.Shape == monitor && (s.UUID == g.UUID || s.Parent == g.UUID)
}

// shares reports whether both are shares of one GPU.
func (g Grant) shares(other Grant) bool { return g.ShareID != "" && g.String() == other.String() }

// Is reports whether the container's device is the one that was granted.
func (g Grant) Is(s Seen) bool {
	if g.Shape == mig {
		return s.Parent == g.Parent && s.Profile == g.Profile && (g.UUID == "" || s.UUID == g.UUID) &&
			(s.Multiprocessors == 0 || s.Multiprocessors == g.Multiprocessors)
	}
	return s.Profile == "" && s.UUID == g.UUID
}

func (g Grant) identity() string {
	if g.Shape == mig {
		return strings.TrimSpace(fmt.Sprintf("%s with %d SM on %s %s", g.Profile, g.Multiprocessors, g.Parent, g.UUID))
	}
	return g.UUID
}

// lastLines returns the end of a log that a person still reads.
func lastLines(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "\n")
}
