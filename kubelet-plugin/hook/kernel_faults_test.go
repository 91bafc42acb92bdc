package hook

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/internal/host/namespacetest"
)

// fault is a system call that fails, with all arguments, or with a value of one of them.
type fault struct {
	call     uint32
	errno    unix.Errno
	filtered bool
	argument uint32
	value    uint32
}

// in calls f in a thread whose system call fails. The kernel fails it (seccomp(2)), in this thread only, which then ends.
func (f fault) in(t *testing.T, do func()) {
	t.Helper()
	const number, arguments = 0, 16 // of struct seccomp_data
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: value}
	}
	result := func(value uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value} }
	fail, allow := result(unix.SECCOMP_RET_ERRNO|uint32(f.errno)), result(unix.SECCOMP_RET_ALLOW)
	filter := []unix.SockFilter{load(number), unless(f.call, 1), fail, allow}
	if f.filtered {
		filter = []unix.SockFilter{load(number), unless(f.call, 3), load(arguments + 8*f.argument), unless(f.value, 1), fail, allow}
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // at most six
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); errno != 0 {
				err = errno
			}
		}
		if err == nil {
			do()
		}
		ended <- err
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// keepsDescriptors returns a function that checks that as many descriptors are open as now.
func keepsDescriptors(t *testing.T) (check func()) {
	t.Helper()
	open := func() int {
		t.Helper()
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := open()
	return func() {
		t.Helper()
		if after := open(); after != before {
			t.Errorf("%d descriptors are open, before %d", after, before)
		}
	}
}

// The flags with which files are created, for others to read or not.
const createFlags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC

// An error of the kernel is an error of the hook, with the path, and leaves no descriptor open.
func TestErrorsOfTheKernel(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // finalizers would close them
	everyHook(newBundle(t))                          // opens what the process keeps
	update, link := []string{UpdateLDCache, "--folder", "/usr/lib64"}, []string{CreateSymlinks, "--link", "a::/opt/new/b"}
	for name, test := range map[string]struct {
		fault fault
		args  []string
		want  string
	}{
		"processor time": {fault{call: unix.SYS_GETRUSAGE, errno: unix.EPERM}, link, "read the processor time"},
		"new folder":     {fault{call: unix.SYS_MKDIRAT, errno: unix.ENOSPC}, link, "make folder /opt/new"},
		"type of a file": {fault{call: unix.SYS_FSTATFS, errno: unix.EIO}, update, "read /etc/ld.so.conf"},
		"new file":       {fault{unix.SYS_OPENAT, unix.ENOSPC, true, 2, createFlags | unix.O_NOFOLLOW}, update, "write " + cachePath},
		"folder":         {fault{call: unix.SYS_GETDENTS64, errno: unix.EIO}, update, "scan /usr/lib64"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			b.write(confPath, "/usr/lib64\n")
			b.folder("/usr/lib64")
			checkDescriptors := keepsDescriptors(t)
			var err error
			test.fault.in(t, func() { _, err = b.try(test.args...) })
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.fault.errno.Error()) {
				t.Errorf("got %v, want %q and %q", err, test.want, test.fault.errno)
			}
			checkDescriptors()
		})
	}
}

// What is open can fail as well.
func TestErrorsOfTheKernelWithOpenFiles(t *testing.T) {
	b := newBundle(t)
	b.write("/etc/file", "text")
	r := b.open()
	handle, err := r.lookup("/etc/file")
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	for name, test := range map[string]struct {
		fault fault
		do    func() error
	}{
		"read":     {fault{call: unix.SYS_READ, errno: unix.EIO}, func() error { _, err := readHandle(handle, 10); return err }},
		"mount":    {fault{call: unix.SYS_READ, errno: unix.EIO}, func() error { return r.inRootMount(handle) }},
		"identity": {fault{call: unix.SYS_FSTAT, errno: unix.EIO}, func() error { _, err := identityOf(handle); return err }},
		"library":  {fault{call: unix.SYS_PREAD64, errno: unix.EIO}, func() error { _, err := readLibrary(int(handle.Fd())); return err }},
	} {
		var err error
		test.fault.in(t, func() { err = test.do() })
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The parameters are replaced as a whole or not at all, whichever call fails. An old kernel, which lacks the calls, is a warning.
func TestOvermountFails(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // finalizers would close descriptors
	b := newBundle(t)
	proc, r, folder, target := openParams(t, b)
	const fsconfigCreate = 6 // linux/mount.h
	for name, test := range map[string]struct {
		fault fault
		// want is a part of the error, or of the warning if there is no error.
		want, warning string
	}{
		"old kernel": {fault{call: unix.SYS_FSOPEN, errno: unix.ENOSYS}, "", "too old"},
		"fsopen":     {fault{call: unix.SYS_FSOPEN, errno: unix.EPERM}, "make a tmpfs", ""},
		"fsconfig":   {fault{call: unix.SYS_FSCONFIG, errno: unix.EINVAL}, "make a tmpfs", ""},
		"create":     {fault{unix.SYS_FSCONFIG, unix.ENOMEM, true, 1, fsconfigCreate}, "make a tmpfs", ""},
		"fsmount":    {fault{call: unix.SYS_FSMOUNT, errno: unix.EPERM}, "make a tmpfs", ""},
		"file":       {fault{unix.SYS_OPENAT, unix.ENOSPC, true, 2, createFlags}, "write to a tmpfs", ""},
		"attach":     {fault{call: unix.SYS_MOVE_MOUNT, errno: unix.EPERM}, "detach a file", ""},
		"clone":      {fault{call: unix.SYS_OPEN_TREE, errno: unix.EPERM}, "detach a file", ""},
		"read-only":  {fault{call: unix.SYS_MOUNT_SETATTR, errno: unix.EPERM}, "detach a file", ""},
		"umount":     {fault{call: unix.SYS_UMOUNT2, errno: unix.EPERM}, "detach a file", ""},
	} {
		t.Run(name, func(t *testing.T) {
			warning := ""
			c := container{root: r, warn: func(format string, _ ...any) { warning += format }}
			checkDescriptors := keepsDescriptors(t)
			var err error
			test.fault.in(t, func() { err = c.mask(folder, target, []byte("ModifyDeviceFiles: 1\n")) })
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if !strings.Contains(warning, test.warning) {
				t.Errorf("warning %q, want %q", warning, test.warning)
			}
			checkDescriptors()
			if name == "umount" { // the folder stays hidden, and the container does not start
				if err := unix.Unmount(filepath.Join(proc, "sys/kernel"), unix.MNT_DETACH); err != nil {
					t.Fatal(err)
				}
			}
			if got := b.read("/proc/sys/kernel/ostype"); got != "Linux\n" {
				t.Errorf("the container reads %q", got)
			}
		})
	}
	if err := unix.Unmount(proc, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
}

// The driver's parameters are a file of procfs: here another one, mounted at their place.
func TestParametersCannotBeRead(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // finalizers would close descriptors
	b := newBundle(t)
	b.write(paramsPath, "")
	mount(t, "/proc/sys/kernel/ostype", filepath.Join(b.root, paramsPath), "", unix.MS_BIND)
	b.run(DisableDeviceNodeModification)
	checkDescriptors := keepsDescriptors(t)
	b.run(DisableDeviceNodeModification)
	var err error
	open := fault{unix.SYS_OPENAT, unix.EIO, true, 2, unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC}
	open.in(t, func() { _, err = b.try(DisableDeviceNodeModification) })
	if err == nil || !strings.Contains(err.Error(), "open "+paramsPath) {
		t.Errorf("got %v, want an error that names %s", err, paramsPath)
	}
	checkDescriptors()
	if err := unix.Unmount(filepath.Join(b.root, paramsPath), 0); err != nil {
		t.Fatal(err)
	}
}
