package toolkit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/containerd"
)

// Verb is the verb's name.
const Verb = "toolkit"

// The reasons why a runtime cannot be made to read CDI specs.
const (
	// RuntimeUnknown: neither containerd nor CRI-O, or too old for CDI.
	RuntimeUnknown = "RuntimeUnknown"
	// RuntimeUnreachable: it does not answer.
	RuntimeUnreachable = "RuntimeUnreachable"
	// CDIDisabled: its own configuration says so where the default would do.
	CDIDisabled = "CDIDisabled"
	// ConfigVersion: the configuration is in a format that has no room for a drop-in.
	ConfigVersion = "ConfigVersion"
	// ConfigGenerated: something else writes the configuration whenever the runtime starts.
	ConfigGenerated = "ConfigGenerated"
	// ConfigConflict: another file would override the drop-in.
	ConfigConflict = "ConfigConflict"
	// ConfigReadOnly: it cannot be written.
	ConfigReadOnly = "ConfigReadOnly"
	// RestartFailed: the runtime did not start with CDI; everything is as it was before.
	RestartFailed = "RestartFailed"
)

// dropIn is the name of our file; nothing of ours is imported by another pattern than that.
const (
	dropIn  = "99-tessera-cdi.toml"
	pattern = "99-tessera-*.toml"
)

const comment = `# Written by Tessera, which enables CDI here; rewritten when the configuration changes and removed by "tessera-node host toolkit --remove".
# containerd 1.7 takes a plugin's whole section from the last file that has one. So this is the section as the other files have it, and
# nothing in it differs but enable_cdi and cdi_spec_dirs.
`

// Plan are the files to be written, so that containerd 1.7 reads CDI specs from its next start on.
type Plan struct {
	// Write are files with their new content, in the order of writing; a nil content removes the file.
	Write []File
	// Folders are those in which a change of a file can change the plan.
	Folders []string
	// ID tells plans apart that lead to different configurations.
	ID string
}

// File is a file of the host.
type File struct {
	Path string
	Text []byte
	// Before is what it holds now, nil when it does not exist.
	Before []byte
}

// Make plans for a main file and the folder of CDI specs. It fails, and nothing is to be written, when the configuration cannot be understood, is
// somebody else's product, or would override what is planned.
func Make(files containerd.Files, main, cdi string) (Plan, error) {
	without, err := forget(files, main)
	if err != nil {
		return Plan{}, err
	}
	base, err := containerd.Load(without, main)
	if err != nil {
		return Plan{}, err
	}
	text, err := read(without, main)
	if err != nil {
		return Plan{}, err
	}
	if base.Version == 1 && (base.Section != nil || len(base.Loaded) > 0 && !blank(text)) {
		return Plan{}, host.Fail(ConfigVersion, "containerd's configuration %s has the format version 1; convert it to version 2 with `containerd config migrate`", main)
	}
	if base.CDI(cdi) {
		return plan(files, without, base)
	}
	added, err := place(without, main, base, cdi)
	if err != nil {
		return Plan{}, err
	}
	p, err := plan(files, added, base)
	p.Folders = append(p.Folders, filepath.Dir(main))
	return p, err
}

// Unmake plans the removal of everything that Make has written. Containerd takes notice at its next start.
func Unmake(files containerd.Files, main string) (Plan, error) {
	without, err := forget(files, main)
	if err != nil {
		return Plan{}, err
	}
	return plan(files, without, containerd.Config{})
}

// forget returns the files without what Make has written.
func forget(files containerd.Files, main string) (containerd.Overlay, error) {
	without := containerd.Overlay{Files: files, Changed: map[string][]byte{}}
	loaded, err := containerd.Load(others{files}, main)
	if err != nil {
		return without, err
	}
	text, err := read(files, main)
	if err != nil || text == nil {
		return without, err
	}
	rest, err := containerd.Forget(main, text, filepath.Join(ours(main), pattern))
	if err != nil {
		return without, err
	}
	if !bytes.Equal(rest, text) {
		without.Changed[main] = rest
	}
	for _, folder := range append(loaded.Folders, ours(main)) {
		file := filepath.Join(folder, dropIn)
		if text, err := read(files, file); err != nil {
			return without, err
		} else if text != nil {
			without.Changed[file] = nil
		}
	}
	return without, nil
}

// others are the files without our drop-ins, so that one that somebody has spoilt is repaired like any other.
type others struct{ containerd.Files }

// Glob returns the files that a pattern means.
func (o others) Glob(pattern string) ([]string, error) {
	matches, err := o.Files.Glob(pattern)
	return slices.DeleteFunc(matches, func(path string) bool { return filepath.Base(path) == dropIn }), err
}

// ours is the folder of the drop-in where no import of the main file covers another.
func ours(main string) string { return filepath.Join(filepath.Dir(main), "conf.d") }

// place adds the drop-in: where an import covers it already, or with one import more.
func place(without containerd.Overlay, main string, base containerd.Config, cdi string) (containerd.Overlay, error) {
	section := base.WithCDI(cdi)
	text, err := containerd.DropIn(comment, section)
	if err != nil {
		return without, err
	}
	for _, folder := range base.Folders {
		if folder == filepath.Dir(main) {
			continue // an import of the main file's own folder would be of files that are none of ours to order
		}
		with := without.With(filepath.Join(folder, dropIn), text)
		if takesEffect(with, main, section) {
			return with, nil
		}
	}
	if by := generator(without, main); by != "" {
		return without, host.Fail(ConfigGenerated, "%s rewrites containerd's configuration %s at each start and it imports no folder; "+
			"enable CDI in its template (enable_cdi = true in the section of %s)", by, main, containerd.CRI)
	}
	old, err := read(without, main)
	if err != nil {
		return without, err
	}
	edited, err := containerd.Import(main, old, filepath.Join(ours(main), pattern))
	if err != nil {
		return without, err
	}
	with := without.With(filepath.Join(ours(main), dropIn), text).With(main, edited)
	if !takesEffect(with, main, section) {
		return without, host.Fail(ConfigConflict, "a file that containerd's configuration %s imports also has the section of %s and overrides drop-ins; "+
			"enable CDI there (enable_cdi = true)", main, containerd.CRI)
	}
	return with, nil
}

// takesEffect reports whether containerd would run with the section.
func takesEffect(files containerd.Files, main string, section map[string]any) bool {
	loaded, err := containerd.Load(files, main)
	return err == nil && loaded.Version == 2 && filepath.Base(loaded.Owner) == dropIn && reflect.DeepEqual(loaded.Section, section)
}

// generator names who writes the configuration, when that is not a person.
func generator(files containerd.Files, main string) string {
	switch {
	case host.Below(main, "/var/lib/rancher/k3s"):
		return "k3s"
	case host.Below(main, "/var/lib/rancher/rke2"):
		return "RKE2"
	}
	text, err := files.Read(main)
	if err == nil && strings.Contains(string(text), "k0s_managed=true") {
		return "k0s"
	}
	return ""
}

// plan are the differences between files as they are and as they are to be: what others refer to comes first when it is made, and last when it goes.
func plan(files containerd.Files, wanted containerd.Overlay, base containerd.Config) (Plan, error) {
	p := Plan{Folders: slices.Clone(base.Folders)}
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(wanted.Changed)) {
		text := wanted.Changed[path]
		fmt.Fprintf(sum, "%q %q\n", path, text)
		before, err := read(files, path)
		if err != nil {
			return Plan{}, err
		}
		p.Folders = append(p.Folders, filepath.Dir(path))
		if (before == nil) != (text == nil) || !bytes.Equal(before, text) {
			p.Write = append(p.Write, File{Path: path, Text: text, Before: before})
		}
	}
	slices.SortFunc(p.Write, func(a, b File) int {
		if x, y := a.rank(), b.rank(); x != y {
			return x - y
		}
		return strings.Compare(a.Path, b.Path)
	})
	slices.Sort(p.Folders)
	p.Folders, p.ID = slices.Compact(p.Folders), hex.EncodeToString(sum.Sum(nil))
	return p, nil
}

// rank orders writes: new drop-ins, main files, drop-ins that go.
func (f File) rank() int {
	switch {
	case filepath.Base(f.Path) != dropIn:
		return 1
	case f.Text == nil:
		return 2
	}
	return 0
}

// read returns nil for a file that does not exist, and never nil for one that does.
func read(files containerd.Files, path string) ([]byte, error) {
	text, err := files.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append([]byte{}, text...), nil
}

// blank reports whether a file says nothing but what it imports.
func blank(text []byte) bool {
	for entry := range bytes.Lines(text) {
		entry = bytes.TrimSpace(entry)
		if len(entry) > 0 && entry[0] != '#' {
			return false
		}
	}
	return true
}
