package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/kubelet-plugin/ldso"
)

const (
	cachePath = "/etc/ld.so.cache"
	confPath  = "/etc/ld.so.conf"
	// The drop-ins come before those of an image in its order of names, and compatibility libraries
	// before the driver's.
	dropIns      = "/etc/ld.so.conf.d"
	compatDropIn = dropIns + "/00-tessera-compat.conf"
	driverDropIn = dropIns + "/00-tessera-driver.conf"
)

// updateLDCache writes the container's ld.so.cache as the container's own ldconfig would, with the
// driver's folders added, and leaves a drop-in for it so that an ldconfig run in the container later
// finds the driver too. Folders that the image lists or its linker knows keep their place in the
// order of search: the driver must not change which other libraries a program gets. Roots of musl,
// which has no cache, get their search path extended; roots without any linker are none the worse.
func updateLDCache(c container, o options) error {
	configured, err := c.configured()
	if err != nil {
		return err
	}
	known := slices.Concat(configured, ldso.DefaultFolders())
	added := c.missing(known, o.folders)
	if len(added) > 0 {
		if err := c.write(driverDropIn, lines(added)); err != nil {
			return err
		}
	}
	if err := c.includeDropIns(); err != nil {
		return err
	}
	preferred, err := c.conf(compatDropIn)
	if err != nil {
		return err
	}
	entries, err := c.libraries(slices.Concat(preferred, added, known))
	if err != nil {
		return err
	}
	if err := c.write(cachePath, ldso.Encode(entries)); err != nil {
		return err
	}
	return c.updateMusl(o.folders)
}

// missing returns those of the folders that are not among the known ones, under whatever path.
func (r root) missing(known, folders []string) []string {
	seen := map[identity]bool{}
	for _, folder := range known {
		if id, err := r.identify(folder); err == nil {
			seen[id] = true
		}
	}
	var missing []string
	for _, folder := range folders {
		if slices.Contains(known, folder) || slices.Contains(missing, folder) {
			continue
		}
		if id, err := r.identify(folder); err == nil {
			if seen[id] {
				continue
			}
			seen[id] = true
		}
		missing = append(missing, folder)
	}
	return missing
}

// includeDropIns writes the usual ld.so.conf where an image has none.
func (r root) includeDropIns() error {
	handle, err := r.lookup(confPath)
	if err == nil {
		return handle.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look up %s: %w", confPath, err)
	}
	return r.write(confPath, []byte("include "+dropIns+"/*.conf\n"))
}

// The musl linker of the machines that Tessera runs on: its path, the file that replaces its search
// path, and what it searches without that file.
var (
	muslMachines = []string{"x86_64", "aarch64"}
	muslDefaults = []string{"/lib", "/usr/local/lib", "/usr/lib"}
)

// updateMusl adds the folders to the search path of a root's musl linker, if it has one.
func (r root) updateMusl(folders []string) error {
	for _, machine := range muslMachines {
		linker, err := r.lookup("/lib/ld-musl-" + machine + ".so.1")
		if err != nil {
			continue
		}
		linker.Close()
		file := "/etc/ld-musl-" + machine + ".path"
		search := muslDefaults
		text, err := r.read(file, maxConf)
		switch {
		case err == nil:
			search = strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' || r == ':' })
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("read %s: %w", file, err)
		}
		added := slices.DeleteFunc(slices.Clone(folders), func(f string) bool { return slices.Contains(search, f) })
		if len(added) == 0 {
			continue
		}
		if err := r.write(file, lines(slices.Concat(search, added))); err != nil {
			return err
		}
	}
	return nil
}

// lines returns a file with a line for each string.
func lines(text []string) []byte { return []byte(strings.Join(text, "\n") + "\n") }

// Bounds far above what images have; an image that exceeds them gets an error.
const (
	maxConf      = 64 << 10
	maxConfFiles = 256
	maxConfDepth = 8
)

// configured returns the folders that the root's ld.so.conf and the files it includes list, in order.
func (r root) configured() ([]string, error) {
	reader := confReader{root: r}
	err := reader.read(confPath, 0)
	return reader.folders, err
}

// conf returns the folders listed in one file; none if there is none.
func (r root) conf(file string) ([]string, error) {
	text, err := r.read(file, maxConf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var folders []string
	for _, line := range ldso.ParseConf(string(text)) {
		if line.Folder != "" {
			folders = append(folders, line.Folder)
		}
	}
	return folders, err
}

// confReader collects the folders of a file and of those that it includes.
type confReader struct {
	root
	folders []string
	files   int
}

// read adds a file's folders. A file that is missing or no regular file adds nothing, as for ldconfig.
func (c *confReader) read(file string, depth int) error {
	if c.files++; c.files > maxConfFiles || depth > maxConfDepth {
		return fmt.Errorf("read %s: more than %d files, or %d deep in each other", confPath, maxConfFiles, maxConfDepth)
	}
	text, err := c.root.read(file, maxConf)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errSpecial) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for _, line := range ldso.ParseConf(string(text)) {
		if line.Folder != "" {
			c.folders = append(c.folders, line.Folder)
			continue
		}
		if err := c.include(path.Dir(file), line.Include, depth); err != nil {
			return err
		}
	}
	return nil
}

// include reads the files that a pattern matches, by name. Only the last element may be a pattern; a
// relative one counts from the folder of the file that has it.
func (c *confReader) include(from, pattern string, depth int) error {
	if !path.IsAbs(pattern) {
		pattern = path.Join(from, pattern)
	}
	folder, ok := c.existing(path.Dir(pattern))
	if !ok {
		return nil
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list %s: %w", path.Dir(pattern), err)
	}
	slices.Sort(names)
	for _, name := range names {
		if ok, err := path.Match(path.Base(pattern), name); err != nil || !ok {
			continue
		}
		if err := c.read(path.Join(path.Dir(pattern), name), depth+1); err != nil {
			return err
		}
	}
	return nil
}
