package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/tessera-gpu/tessera/installer/host"
)

// CRI is the name of the plugin that serves kubelet.
const CRI = "io.containerd.grpc.v1.cri"

// Files accesses files of the host by their host paths.
type Files interface {
	// Read returns a file's content. The error wraps fs.ErrNotExist if the file does not exist.
	Read(path string) ([]byte, error)
	// Glob returns the files that match a pattern, sorted.
	Glob(pattern string) ([]string, error)
}

// Config is the effective configuration.
type Config struct {
	// Version is the format version; 1 if no file has one.
	Version int
	// Section is the CRI plugin's section, nil if no file has one. Owner is the file that contains it.
	Section map[string]any
	Owner   string
	// Loaded are the files in loading order. Folders are those in which a new file would change the configuration.
	Loaded  []string
	Folders []string
}

// document has the relevant parts of a file.
type document struct {
	Version int                       `toml:"version"`
	Imports []string                  `toml:"imports"`
	Plugins map[string]map[string]any `toml:"plugins"`
}

// Load reads the configuration of containerd 1.7. A missing main file counts as empty: containerd then uses its built-in defaults.
func Load(files Files, path string) (Config, error) {
	config := Config{Version: 1, Folders: []string{filepath.Dir(path)}}
	err := walk(files, path, func(file string, d document) {
		config.Loaded = append(config.Loaded, file)
		if d.Version != 0 {
			config.Version = d.Version
		}
		name := CRI
		if config.Version == 1 {
			name = "cri"
		}
		if section, there := d.Plugins[name]; there {
			config.Section, config.Owner = section, file
		}
		for _, pattern := range d.Imports {
			config.Folders = append(config.Folders, filepath.Dir(absolute(file, pattern)))
		}
	})
	if err != nil {
		return Config{}, err
	}
	slices.Sort(config.Folders)
	config.Folders = slices.Compact(config.Folders)
	return config, nil
}

// walk calls visit for every file that containerd loads, in its order. A missing main file is skipped; a missing import is an error.
func walk(files Files, path string, visit func(file string, d document)) error {
	pending, seen := []string{path}, map[string]bool{}
	for len(pending) > 0 {
		file := pending[0]
		pending = pending[1:]
		if seen[file] {
			continue
		}
		seen[file] = true
		text, err := files.Read(file)
		if errors.Is(err, fs.ErrNotExist) && file == path {
			continue
		}
		if err != nil {
			return fmt.Errorf("read containerd's configuration: %w", err)
		}
		d, err := parse(file, text)
		if err != nil {
			return err
		}
		visit(file, d)
		imported, err := expand(files, file, d.Imports)
		if err != nil {
			return err
		}
		pending = append(pending, imported...)
	}
	return nil
}

// expand returns the files of a file's imports.
func expand(files Files, file string, imports []string) ([]string, error) {
	var all []string
	for _, pattern := range imports {
		pattern = absolute(file, pattern)
		if !strings.Contains(pattern, "*") {
			all = append(all, filepath.Clean(pattern))
			continue
		}
		matches, err := files.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("read containerd's configuration: imports of %s: %w", file, err)
		}
		all = append(all, matches...)
	}
	return all, nil
}

// absolute returns the path of an import of a file.
func absolute(file, pattern string) string {
	if filepath.IsAbs(pattern) {
		return pattern
	}
	return filepath.Join(filepath.Dir(file), pattern)
}

func parse(file string, text []byte) (document, error) {
	var d document
	if err := toml.Unmarshal(text, &d); err != nil {
		return document{}, &host.Failure{Reason: ConfigInvalid, Message: "containerd's configuration " + file + " is no valid TOML: repair it", Cause: err}
	}
	return d, nil
}

// ConfigInvalid is the reason if a file cannot be parsed. Nothing is written then.
const ConfigInvalid = "ConfigInvalid"

// CDI reports whether the configuration enables CDI and includes the folder.
func (c Config) CDI(folder string) bool {
	enabled, ok := c.Section["enable_cdi"].(bool)
	return ok && enabled && slices.Contains(c.folders(), filepath.Clean(folder))
}

// folders returns the CDI spec folders, by default containerd's own.
func (c Config) folders() []string {
	listed, there := c.Section["cdi_spec_dirs"].([]any)
	if !there {
		return []string{"/etc/cdi", "/var/run/cdi"}
	}
	var folders []string
	for _, entry := range listed {
		if path, ok := entry.(string); ok {
			folders = append(folders, filepath.Clean(path))
		}
	}
	return folders
}

// WithCDI returns the section with CDI enabled and the folder added to the spec folders. All else is unchanged.
func (c Config) WithCDI(folder string) map[string]any {
	section := maps.Clone(c.Section)
	if section == nil {
		section = map[string]any{}
	}
	section["enable_cdi"] = true
	folders := c.folders()
	if folder = filepath.Clean(folder); !slices.Contains(folders, folder) {
		folders = append(folders, folder)
	}
	list := make([]any, len(folders))
	for i, f := range folders {
		list[i] = f
	}
	section["cdi_spec_dirs"] = list
	return section
}

// OnHost accesses the files of a host.
type OnHost struct{ Roots host.Roots }

// Read returns a file's content.
func (o OnHost) Read(path string) ([]byte, error) {
	seen, err := o.Roots.See(path)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(seen)
}

// Glob returns the files that match a pattern.
func (o OnHost) Glob(pattern string) ([]string, error) {
	fixed := filepath.Dir(pattern[:strings.IndexAny(pattern+"*", "*?[")] + "x")
	seen, err := o.Roots.See(fixed)
	if err != nil {
		return nil, err
	}
	matches, err := filepath.Glob(filepath.Join(seen, strings.TrimPrefix(pattern, fixed)))
	if err != nil {
		return nil, err
	}
	for i, match := range matches {
		matches[i] = filepath.Join(fixed, strings.TrimPrefix(match, seen))
	}
	return matches, nil
}

// Overlay is a view of files with planned changes.
type Overlay struct {
	Files
	// Changed has the contents by path; nil means removed.
	Changed map[string][]byte
}

// Read returns a file's content.
func (o Overlay) Read(path string) ([]byte, error) {
	text, changed := o.Changed[path]
	if changed && text == nil {
		return nil, fmt.Errorf("read %s: %w", path, fs.ErrNotExist)
	}
	if changed {
		return text, nil
	}
	return o.Files.Read(path)
}

// Glob returns the files that match a pattern.
func (o Overlay) Glob(pattern string) ([]string, error) {
	below, err := o.Files.Glob(pattern)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, path := range below {
		if _, changed := o.Changed[path]; !changed {
			all = append(all, path)
		}
	}
	for path, text := range o.Changed {
		if matched, err := filepath.Match(pattern, path); err != nil || !matched || text == nil {
			continue
		}
		all = append(all, path)
	}
	slices.Sort(all)
	return all, nil
}

// With returns a copy of the overlay with one more change.
func (o Overlay) With(path string, text []byte) Overlay {
	changed := maps.Clone(o.Changed)
	if changed == nil {
		changed = map[string][]byte{}
	}
	changed[path] = text
	return Overlay{Files: o.Files, Changed: changed}
}
