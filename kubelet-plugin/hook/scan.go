package hook

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

// Limits far above those of real images; an image that exceeds them is an error.
const (
	// maxLibraries is the maximum number of files and links that a scan reads; the largest images have a few thousand.
	maxLibraries = 1 << 13
	// maxVariants is the maximum number of folders with variants for processors.
	maxVariants = 1 << 8
)

// identity identifies a folder that has several paths.
type identity struct{ device, inode uint64 }

func (r root) identify(folder string) (identity, error) {
	handle, err := r.lookup(folder)
	if err != nil {
		return identity{}, err
	}
	defer handle.Close()
	return identityOf(handle)
}

func identityOf(file *os.File) (identity, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return identity{}, err
	}
	return identity{device: stat.Dev, inode: stat.Ino}, nil
}

// scanner finds the libraries of a root like glibc's ldconfig.
type scanner struct {
	root
	scanned map[identity]bool
	entries []ldso.Entry
	// These count what the limits bound.
	listed, files, variants int
}

// libraries returns the linker's entries for the folders, in their order. Folders that do not exist, and repeated ones
// under another path, are left out.
func (r root) libraries(folders []string) ([]ldso.Entry, error) {
	s := scanner{root: r, scanned: map[identity]bool{}}
	for _, folder := range folders {
		if err := s.scan(folder, ""); err != nil {
			return nil, fmt.Errorf("scan %s: %w", folder, err)
		}
	}
	return s.entries, nil
}

// scan adds the libraries of a folder and, unless hwcap is set, of its glibc-hwcaps subfolders, which have variants for
// newer processors.
func (s *scanner) scan(path, hwcap string) error {
	dir, ok := s.existing(path)
	if !ok {
		return nil
	}
	defer dir.Close()
	id, err := identityOf(dir)
	if err != nil || s.scanned[id] {
		return err
	}
	s.scanned[id] = true
	names, err := listNames(dir, &s.listed, ldso.IsLibraryName)
	if err != nil {
		return err
	}
	if s.files += len(names); s.files > maxLibraries {
		return fmt.Errorf("more than %d libraries", maxLibraries)
	}
	s.add(s.list(dir, path, names), hwcap)
	if hwcap != "" {
		return nil
	}
	return s.scanHwcaps(path + "/glibc-hwcaps")
}

func (s *scanner) scanHwcaps(folder string) error {
	dir, ok := s.existing(folder)
	if !ok {
		return nil
	}
	defer dir.Close()
	names, err := listNames(dir, &s.listed, ldso.Plain)
	if err != nil {
		return err
	}
	if s.variants += len(names); s.variants > maxVariants {
		return fmt.Errorf("more than %d folders of variants", maxVariants)
	}
	for _, name := range names {
		if err := s.scan(path.Join(folder, name), name); err != nil {
			return err
		}
	}
	return nil
}

// add adds an entry for every name under which programs may load a library of the folder.
func (s *scanner) add(l listing, hwcap string) {
	found := map[string]candidate{}
	for name, library := range l.files {
		found = prefer(found, candidateOf(name, library, false))
	}
	for name := range l.links {
		if library, ok := s.follow(l, name); ok {
			found = prefer(found, candidateOf(name, library, true))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		c := found[key]
		name := c.name
		// The name that programs load survives an update of the library.
		if hwcap == "" && l.has(key) {
			name = key
		}
		s.entries = append(s.entries, ldso.Entry{Name: key, Path: path.Join(l.folder, name), ABI: c.abi, Hwcap: hwcap})
	}
}
