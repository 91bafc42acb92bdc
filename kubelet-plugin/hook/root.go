package hook

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// root is a container's root file system. Every path is resolved inside it, by the kernel or element by element on
// handles: absolute links and ".." lead to the root, never out of it, even if another process changes the tree
// concurrently.
type root struct {
	dir *os.File
	// began is the processor time of the process when the root was opened.
	began time.Duration
}

// openRoot opens the root, from when on processor time counts.
func openRoot(path string) (root, error) {
	dir, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return root{}, fmt.Errorf("open the container's root: %w", err)
	}
	began, err := processorTime()
	if err != nil {
		dir.Close()
		return root{}, err
	}
	return root{dir: dir, began: began}, nil
}

func (r root) close() { r.dir.Close() }

// lookup returns a handle that can be inspected but neither read nor written: the lookup of a device or a pipe has no
// effect on it. After maxProcessorTime, every lookup fails.
func (r root) lookup(path string) (*os.File, error) {
	if err := r.checkTime(); err != nil {
		return nil, err
	}
	return pathrs.OpenatInRoot(r.dir, path)
}

// folder opens a folder to list it and to create files in it.
func (r root) folder(path string) (*os.File, error) {
	handle, err := r.lookup(path)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	return pathrs.Reopen(handle, unix.O_RDONLY|unix.O_DIRECTORY)
}

// existing opens a folder if it exists; like ldconfig, it treats a folder that cannot be opened as missing.
func (r root) existing(path string) (*os.File, bool) {
	folder, err := r.folder(path)
	return folder, err == nil
}

// makeFolder opens a folder to change it, and creates its missing elements. The error wraps unix.EXDEV if the folder is on another mount than the
// root, see inRootMount.
func (r root) makeFolder(path string) (*os.File, error) {
	if err := r.checkParents(path); err != nil {
		return nil, fmt.Errorf("make folder %s: %w", path, err)
	}
	dir, err := pathrs.MkdirAllHandle(r.dir, path, 0o755)
	if err != nil {
		return nil, fmt.Errorf("make folder %s: %w", path, err)
	}
	if err := r.inRootMount(dir); err != nil {
		dir.Close()
		return nil, fmt.Errorf("make folder %s: %w", path, err)
	}
	return dir, nil
}

// read returns the content of a regular file of at most limit bytes.
func (r root) read(path string, limit int64) ([]byte, error) {
	handle, err := r.lookup(path)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	return readHandle(handle, limit)
}

// readHandle returns the content of the regular file behind a handle, at most limit bytes.
func readHandle(handle *os.File, limit int64) ([]byte, error) {
	fd, err := reopen(int(handle.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", handle.Name(), err)
	}
	return readDescriptor(fd, handle.Name(), limit)
}

// readDescriptor returns the content of an open file, at most limit bytes, and closes it.
func readDescriptor(fd int, name string, limit int64) ([]byte, error) {
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("read %s: more than %d bytes", name, limit)
	}
	return text, nil
}

// errSpecial means that a file is not a regular file, or a file of the kernel: these are regular files whose content is made when they are read,
// some of which wait for an event or consume it.
var errSpecial = errors.New("not a regular file")

// reopen returns a descriptor to read the regular file behind a handle. The file behind a handle cannot be replaced, so
// the file that was inspected is the one that is opened.
func reopen(handle int) (int, error) {
	var stat unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Fstat(handle, &stat), unix.Fstatfs(handle, &system)); err != nil {
		return -1, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || isKernelType(int64(system.Type)) {
		return -1, errSpecial
	}
	return openHandle(handle)
}

// openHandle opens the file behind a handle, whatever it is, to read it without waiting.
func openHandle(handle int) (int, error) {
	return unix.Open(selfFD(handle), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// selfFD returns the path of an open descriptor of this process.
func selfFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// write replaces the file at the path atomically. A link there is replaced, not followed. A file that already has the
// content is not changed, also on a read-only file system.
func (r root) write(name string, content []byte) error {
	if same, err := r.read(name, int64(len(content))); err == nil && bytes.Equal(same, content) {
		return nil
	}
	folder, err := r.makeFolder(path.Dir(name))
	if err != nil {
		return err
	}
	defer folder.Close()
	err = replace(folder, path.Base(name), func(temporary string) error {
		fd, err := unix.Openat(int(folder.Fd()), temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), name)
		_, err = file.Write(content)
		// The process's umask must not make the file unreadable for the container's users.
		return errors.Join(err, file.Chmod(0o644), file.Close())
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// remove removes a file or a link; a missing one is not an error. The error wraps unix.EXDEV if it is on another mount than the root.
func (r root) remove(name string) error {
	folder, err := r.folder(path.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer folder.Close()
	var stat unix.Stat_t
	err = unix.Fstatat(int(folder.Fd()), path.Base(name), &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		err = r.inRootMount(folder)
	}
	if err == nil {
		err = ignore(unix.Unlinkat(int(folder.Fd()), path.Base(name), 0), unix.ENOENT)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// replace creates something with a temporary name in the folder and renames it to name, replacing what is there. After
// an error the temporary file is removed.
func replace(folder *os.File, name string, create func(temporary string) error) error {
	temporary := ".tessera-" + rand.Text()
	err := create(temporary)
	if err == nil {
		err = unix.Renameat(int(folder.Fd()), temporary, int(folder.Fd()), name)
	}
	if err != nil {
		return errors.Join(err, ignore(unix.Unlinkat(int(folder.Fd()), temporary, 0), unix.ENOENT, unix.EROFS))
	}
	return nil
}

// ignore returns err unless it is one of the expected errors.
func ignore(err error, expected ...error) error {
	for _, e := range expected {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}
