package disktest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// limit is up to how many states after one call are all tried; of more, limit are sampled, with a fixed seed.
const limit = 64

// choice is which of the pending changes and of the possible contents a power failure leaves.
type choice struct {
	entries  []bool
	contents map[node]string
}

// fragments are what may be left of a file that was not synced: all that was ever written, and torn content.
func fragments(versions []string) []string {
	if len(versions) == 1 {
		return versions
	}
	last := versions[len(versions)-1]
	possible := append(slices.Clone(versions), last[:len(last)/2], string(make([]byte, len(last))))
	slices.Sort(possible)
	return slices.Compact(possible)
}

// choices returns what a power failure may leave of the state.
func (s state) choices(random *rand.Rand) []choice {
	files := slices.DeleteFunc(slices.Sorted(maps.Keys(s.contents)), func(n node) bool { return len(fragments(s.contents[n])) == 1 })
	total := 1
	for range s.pending {
		total = min(2*total, limit+1)
	}
	for _, n := range files {
		total = min(total*len(fragments(s.contents[n])), limit+1)
	}
	pick := func(number func(options int) int) choice {
		c := choice{entries: make([]bool, len(s.pending)), contents: map[node]string{}}
		for i := range c.entries {
			c.entries[i] = number(2) == 1
		}
		for _, n := range files {
			possible := fragments(s.contents[n])
			c.contents[n] = possible[number(len(possible))]
		}
		return c
	}
	var all []choice
	if total <= limit {
		for i := range total {
			rest := i
			all = append(all, pick(func(options int) int {
				n := rest % options
				rest /= options
				return n
			}))
		}
		return all
	}
	all = append(all, pick(func(int) int { return 0 }), s.kept())
	for i := range s.pending { // each change alone, and all but it
		alone, others := pick(func(int) int { return 0 }), s.kept()
		alone.entries[i], others.entries[i] = true, false
		all = append(all, alone, others)
	}
	for len(all) < limit {
		all = append(all, pick(random.IntN))
	}
	return all
}

// kept is the choice of everything that the program has written.
func (s state) kept() choice {
	c := choice{contents: map[node]string{}}
	for range s.pending {
		c.entries = append(c.entries, true)
	}
	for n, versions := range s.contents {
		c.contents[n] = versions[len(versions)-1]
	}
	return c
}

// write makes the state, as far as it was chosen, in the folder, which is emptied first.
func (s state) write(root node, c choice, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	folders := map[node]map[string]node{}
	for n, entries := range s.folders {
		folders[n] = maps.Clone(entries)
	}
	for i, e := range s.pending {
		if c.entries[i] {
			e.apply(folders[e.folder])
		}
	}
	return s.writeFolder(root, c, folders, dir)
}

func (s state) writeFolder(n node, c choice, folders map[node]map[string]node, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for name, child := range folders[n] {
		path := filepath.Join(dir, name)
		if _, isFolder := folders[child]; isFolder {
			if err := s.writeFolder(child, c, folders, path); err != nil {
				return err
			}
			continue
		}
		text, chosen := c.contents[child]
		if !chosen {
			text = s.contents[child][0]
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// View returns what a program that starts on the folder finds there, as text that is equal for equal states. The folder is a copy and may be changed.
type View func(dir string) (string, error)

// CheckPowerLoss makes every state in which a power failure may leave the disk, one call after the other, and returns what is wrong: after a failure,
// view must find a state that it would have found at a moment since the last Returned before the failure. It returns the number of states tried.
func (d *Disk) CheckPowerLoss(tb testing.TB, view View) (tried int, wrong []string) {
	tb.Helper()
	dir := filepath.Join(Folder(tb), "disk")
	random := rand.New(rand.NewPCG(1, 2))
	live := make([]string, len(d.history.states))
	for i, s := range d.history.states {
		if err := s.write(d.history.root, s.kept(), dir); err != nil {
			tb.Fatal(err)
		}
		live[i] = look(view, dir)
	}
	since := 0
	for i, s := range d.history.states {
		for _, n := range d.history.returned {
			if n <= i+1 {
				since = n - 1
			}
		}
		for _, c := range s.choices(random) {
			if err := s.write(d.history.root, c, dir); err != nil {
				tb.Fatal(err)
			}
			tried++
			if len(wrong) > 0 && d.dropped != "" {
				return tried, wrong
			}
			if got := look(view, dir); !slices.Contains(live[since:i+1], got) {
				wrong = append(wrong, fmt.Sprintf("a power failure after call %d of %d leaves %s, and the program had %q since its last return", i, len(d.history.states)-1, got, live[since:i+1]))
			}
		}
	}
	return tried, wrong
}

// EachLoss calls do for every state in which a power failure may leave the disk after its last call, with a folder that has this state.
func (d *Disk) EachLoss(tb testing.TB, do func(dir string)) {
	tb.Helper()
	dir := filepath.Join(Folder(tb), "disk")
	last := d.history.states[len(d.history.states)-1]
	for _, c := range last.choices(rand.New(rand.NewPCG(1, 2))) {
		if err := last.write(d.history.root, c, dir); err != nil {
			tb.Fatal(err)
		}
		do(dir)
	}
}

// look returns the view as text, also if it fails.
func look(view View, dir string) string {
	text, err := view(dir)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return fmt.Sprintf("%s, %v", text, err)
	}
	return text
}

// Program performs operations on a fresh disk and calls Returned after each.
type Program func(d *Disk)

// MutateSyncs runs the program once for each place that syncs, with these syncs without effect, and fails the test if CheckPowerLoss then finds
// nothing wrong: no test would notice that the sync is missing. Without a mutation, nothing may be wrong. It returns the places.
func MutateSyncs(t *testing.T, program Program, view View) []string {
	t.Helper()
	run := func(dropped string) (*Disk, int, []string) {
		d := New(t, Folder(t))
		d.dropped = dropped
		program(d)
		tried, wrong := d.CheckPowerLoss(t, view)
		return d, tried, wrong
	}
	d, tried, wrong := run("")
	for _, text := range wrong[:min(len(wrong), 5)] {
		t.Error(text)
	}
	sites := d.Syncs()
	t.Logf("%d states after power failures, %d wrong; %d places sync", tried, len(wrong), len(sites))
	for _, name := range sites {
		if _, _, wrong := run(name); len(wrong) == 0 {
			t.Errorf("without the %s, no power failure loses anything: the sync is not needed, or the test is too weak", name)
		}
	}
	return sites
}
