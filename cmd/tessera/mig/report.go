package mig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// deviations returns in which way the machine is not as the targets want it, GPU by GPU; none when it is.
// Every GPU of the node must be described.
func (m machine) deviations(targets []target, scope Scope) []string {
	var found []string
	for _, t := range targets {
		if !t.described {
			found = append(found, label(t.gpu)+": no entry of the layout describes it")
			continue
		}
		mode := gpu.ModeDisabled
		if t.enabled {
			mode = gpu.ModeEnabled
		}
		fixture := m.fixture(t.gpu)
		switch {
		case t.gpu.Lost:
			found = append(found, label(t.gpu)+": does not answer")
		case t.gpu.Mode != mode && t.gpu.Mode != gpu.ModeUnsupported:
			found = append(found, fmt.Sprintf("%s: MIG is %v, must be %v", label(t.gpu), t.gpu.Mode, mode))
		case scope == Whole && t.enabled:
			destroy, create, err := difference(t, fixture)
			if err != nil || len(destroy)+len(create) > 0 {
				found = append(found, fmt.Sprintf("%s: holds %s, must hold %s", label(t.gpu), placements(t.gpu, spans(fixture)), wants(t)))
			}
		}
	}
	return found
}

func spans(instances []gpu.Instance) []gpu.Placement {
	var all []gpu.Placement
	for _, i := range instances {
		all = append(all, i.Placement)
	}
	return all
}

// placements lists instances with their places.
func placements(g gpu.GPU, all []gpu.Placement) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, fmt.Sprintf("%s at %d", profileName(g, p.Profile), p.Start))
	}
	if len(texts) == 0 {
		return "nothing"
	}
	return strings.Join(texts, ", ")
}

func wants(t target) string {
	var texts []string
	for _, id := range slices.Compact(slices.Clone(t.wanted)) {
		n := len(slices.DeleteFunc(slices.Clone(t.wanted), func(other int) bool { return other != id }))
		texts = append(texts, fmt.Sprintf("%d x %s", n, profileName(t.gpu, id)))
	}
	if len(t.fixed) > 0 {
		texts = append(texts, placements(t.gpu, t.fixed))
	}
	if len(texts) == 0 {
		return "nothing"
	}
	return strings.Join(texts, ", ")
}

func profileName(g gpu.GPU, id int) string {
	p, ok := g.Geometry.Profile(id)
	if !ok {
		return fmt.Sprintf("profile %d", id)
	}
	return p.Name
}

// Form is how Export writes instances.
type Form int

// The forms.
const (
	// Counts writes amounts, as mig-parted does.
	Counts Form = iota
	// Starts writes first memory slices.
	Starts
)

// export returns a file with one layout that describes the machine. GPUs that are alike share an entry.
// An error names what a file cannot say.
func (m machine) export(label string, form Form) (Config, error) {
	var entries []Entry
	var alike [][]int
	for _, g := range m.node.GPUs {
		e, err := m.describe(g, form)
		if err != nil {
			return Config{}, err
		}
		i := slices.IndexFunc(entries, func(other Entry) bool { return sameInstances(e, other) })
		if i < 0 {
			i = len(entries)
			entries, alike = append(entries, e), append(alike, nil)
		}
		alike[i] = append(alike[i], g.Index)
	}
	for i := range entries {
		entries[i].Devices = Devices{All: len(entries) == 1, Indices: alike[i]}
	}
	return Config{Version: Version, Layouts: map[string][]Entry{label: entries}}, nil
}

func sameInstances(a, b Entry) bool {
	return *a.Enabled == *b.Enabled && maps.EqualFunc(a.Instances, b.Instances, func(x, y Amount) bool {
		return x.Count == y.Count && slices.Equal(x.Starts, y.Starts)
	})
}

func (m machine) describe(g gpu.GPU, form Form) (Entry, error) {
	if g.Lost {
		return Entry{}, fmt.Errorf("export %s: does not answer: %w", label(g), gpu.ErrLost)
	}
	enabled := g.Mode == gpu.ModeEnabled
	e := Entry{Enabled: &enabled}
	if !enabled {
		return e, nil
	}
	e.Instances = map[string]Amount{}
	for _, i := range m.fixture(g) {
		profile, err := g.Geometry.Legal(i.Placement)
		if err == nil {
			err = i.Verify(profile, i.Placement)
		}
		if err != nil {
			return Entry{}, fmt.Errorf("export %s: the format cannot describe it: %w", label(g), err)
		}
		amount := e.Instances[profile.Name]
		amount.Count++
		if form == Starts {
			amount.Starts = append(amount.Starts, i.Placement.Start)
		}
		e.Instances[profile.Name] = amount
	}
	return e, nil
}
