package hook

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/kubelet-plugin/ldso"
)

// maxLibraries bounds how many files a scan looks into; the largest images have a few thousand.
const maxLibraries = 1 << 15

// identity tells folders apart that have several paths.
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

// scanner finds the libraries of a root in the way of glibc's ldconfig.
type scanner struct {
	root
	scanned map[identity]bool
	files   int
	entries []ldso.Entry
}

// libraries returns what the linker is to find in the folders, in their order; folders that do not
// exist are left out, and one that comes again under another path as well.
func (r root) libraries(folders []string) ([]ldso.Entry, error) {
	s := scanner{root: r, scanned: map[identity]bool{}}
	for _, folder := range folders {
		if err := s.scan(folder, ""); err != nil {
			return nil, fmt.Errorf("scan %s: %w", folder, err)
		}
	}
	return s.entries, nil
}

// scan adds the libraries of a folder and, unless it is one itself, of its variants for processors
// with more than the basic instructions.
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
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !ldso.IsLibraryName(name) })
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
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !ldso.Plain(name) {
			continue
		}
		if err := s.scan(path.Join(folder, name), name); err != nil {
			return err
		}
	}
	return nil
}

// add adds an entry for every name under which programs may ask for a library of the folder.
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
		// The name that programs ask for survives an update of the library.
		if hwcap == "" && l.has(key) {
			name = key
		}
		s.entries = append(s.entries, ldso.Entry{Name: key, Path: path.Join(l.folder, name), ABI: c.abi, Hwcap: hwcap})
	}
}

// candidate is a file that could serve the programs that ask for key.
type candidate struct {
	key  string
	name string
	abi  ldso.ABI
	link bool
}

// candidateOf returns what a file or a link serves. A link whose name is neither the library's own
// nor, without the version, the one for compilers counts as a file.
func candidateOf(name string, library ldso.Library, link bool) candidate {
	soname := cmp.Or(library.Name, name)
	if link && (name == soname || strings.HasSuffix(name, ".so") && strings.HasPrefix(soname, name)) {
		return candidate{key: name, name: name, abi: library.ABI, link: true}
	}
	return candidate{key: soname, name: name, abi: library.ABI}
}

// prefer keeps of two candidates for one key the one that ldconfig takes: a file rather than a link,
// then the higher version.
func prefer(found map[string]candidate, c candidate) map[string]candidate {
	other, ok := found[c.key]
	if !ok || other.link && !c.link || other.link == c.link && ldso.CompareNames(c.name, other.name) > 0 {
		found[c.key] = c
	}
	return found
}

// listing is what a folder has of libraries: files with what they are, and links with their texts.
type listing struct {
	folder string
	files  map[string]ldso.Library
	links  map[string]string
}

func (l listing) has(name string) bool {
	_, file := l.files[name]
	_, link := l.links[name]
	return file || link
}

// list looks at the entries of a folder. What is neither a library nor a link is left out.
func (r root) list(dir *os.File, folder string, names []string) listing {
	l := listing{folder: folder, files: map[string]ldso.Library{}, links: map[string]string{}}
	for _, name := range names {
		handle, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		library, err := readLibrary(handle)
		switch {
		case err == nil:
			l.files[name] = library
		case errors.Is(err, errSpecial):
			if target, err := readLink(handle); err == nil {
				l.links[name] = target
			}
		}
		unix.Close(handle)
	}
	return l
}

// follow returns the library that a link leads to. Links inside the folder, nearly all there are,
// need no look at the files.
func (r root) follow(l listing, name string) (ldso.Library, bool) {
	for target, hops := l.links[name], 0; hops < 8 && l.has(target); hops++ {
		if library, ok := l.files[target]; ok {
			return library, true
		}
		target = l.links[target]
	}
	handle, err := r.lookup(path.Join(l.folder, name))
	if err != nil {
		return ldso.Library{}, false
	}
	defer handle.Close()
	library, err := readLibrary(int(handle.Fd()))
	return library, err == nil
}

// readLink returns the text of the link behind a handle.
func readLink(handle int) (string, error) {
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(handle, "", text)
	if err != nil {
		return "", err
	}
	return string(text[:n]), nil
}

func readLibrary(handle int) (ldso.Library, error) {
	fd, err := reopen(handle)
	if err != nil {
		return ldso.Library{}, err
	}
	defer unix.Close(fd)
	return ldso.ReadLibrary(descriptor(fd))
}

// descriptor reads from an open file without the cost of an os.File.
type descriptor int

// ReadAt implements io.ReaderAt.
func (d descriptor) ReadAt(p []byte, offset int64) (int, error) {
	n, err := unix.Pread(int(d), p, offset)
	if err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
