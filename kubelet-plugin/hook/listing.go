package hook

import (
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

// listing is the libraries of a folder: files with their library data, and links with their targets.
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

// list reads the entries of a folder. Entries that are neither libraries nor links are left out.
func (r root) list(dir *os.File, folder string, names []string) listing {
	l := listing{folder: folder, files: map[string]ldso.Library{}, links: map[string]string{}}
	target := make([]byte, unix.PathMax)
	for _, name := range names {
		if n, err := unix.Readlinkat(int(dir.Fd()), name, target); err == nil {
			l.links[name] = string(target[:n])
			continue
		}
		handle, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if library, err := readLibrary(handle); err == nil {
			l.files[name] = library
		}
		unix.Close(handle)
	}
	return l
}

// follow returns the library to which a link leads. Links within the folder, which are nearly all, need no access to the
// files.
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

func readLibrary(handle int) (ldso.Library, error) {
	fd, err := reopen(handle)
	if err != nil {
		return ldso.Library{}, err
	}
	defer unix.Close(fd)
	return ldso.ReadLibrary(descriptor(fd))
}

// descriptor reads from an open file without the overhead of an os.File.
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
