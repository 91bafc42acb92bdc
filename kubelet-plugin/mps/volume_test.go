package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/internal/host/namespacetest"
)

// mountVolume mounts the volume as kubelet does for a pod.
func mountVolume(t *testing.T, v volume, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o777); err != nil {
		t.Fatal(err)
	}
	size := resource.MustParse(v.size)
	options := fmt.Sprintf("size=%d", size.Value())
	err := unix.Mount("tmpfs", path, "tmpfs", 0, options+",noswap")
	if errors.Is(err, unix.EINVAL) { // kernels before 6.4 lack it
		err = unix.Mount("tmpfs", path, "tmpfs", 0, options)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// checkHalf checks that the file system takes half of the machine's memory, and the number of files.
func checkHalf(t *testing.T, path string, inodes int) {
	t.Helper()
	var system unix.Statfs_t
	var machine unix.Sysinfo_t
	if err := errors.Join(unix.Statfs(path, &system), unix.Sysinfo(&machine)); err != nil {
		t.Fatal(err)
	}
	half := machine.Totalram * uint64(machine.Unit) / 2
	if size := system.Blocks * uint64(system.Bsize); size < half*9/10 || size > half*11/10 || int(system.Files) != inodes { //nolint:gosec // small numbers
		t.Errorf("%s takes %d bytes and %d files, want %d and %d", path, size, system.Files, half, inodes)
	}
}

// used returns the used blocks and files of the file system.
func used(t *testing.T, path string) (blocks, files uint64) {
	t.Helper()
	var system unix.Statfs_t
	if err := unix.Statfs(path, &system); err != nil {
		t.Fatal(err)
	}
	return system.Blocks - system.Bfree, system.Files - system.Ffree
}

// fill writes into the folder until it is full: into one file until there is no space, then empty files until there are no inodes. It returns both
// amounts.
func fill(t *testing.T, folder string) (bytes, files int) {
	t.Helper()
	const mostBytes, mostFiles = 64 << 20, 1 << 17 // only end a test without success
	file, err := os.Create(filepath.Join(folder, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<16)
	for err == nil && bytes < mostBytes {
		var n int
		n, err = file.Write(block)
		bytes += n
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%s: %d bytes are written: %v", folder, bytes, err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil && files < mostFiles; files++ {
		err = unix.Mknod(filepath.Join(folder, fmt.Sprint("empty-", files)), unix.S_IFREG|0o600, 0)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%s: %d files are made: %v", folder, files, err)
	}
	return bytes, files
}

// A client that writes into the folders of its daemon until nothing more fits fills the volumes of the daemon's pod and not the file system of the
// host. Another user than root cannot replace the daemon's sockets. The daemon serves, and starts again.
func TestClientFillsVolumesOnly(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	s := &stage{t: t, folder: filepath.Join(t.TempDir(), "mps-gpu"), dir: t.TempDir()}
	host := filepath.Dir(s.folder) // as /run, a tmpfs
	mountVolume(t, volume{name: "host", size: "256Mi"}, host)
	mountVolume(t, pipes, filepath.Join(s.folder, pipeName))
	mountVolume(t, logs, filepath.Join(s.folder, logName))
	sharedFolder := filepath.Join(s.dir, "shm")
	mountVolume(t, volume{name: sharedMemory.name, size: "16Mi"}, sharedFolder) // kubelet's size
	wasNoSwap, err := isNoSwap(host)
	if err != nil {
		t.Fatal(err)
	}
	s.install()
	s.start()
	s.configure(limited)
	if seen := s.await(limited); !seen.Volumes {
		t.Fatalf("the volumes are not reported: %+v", seen)
	}
	blocks, files := used(t, host)
	for path, v := range map[string]volume{filepath.Join(s.folder, pipeName): pipes, sharedFolder: sharedMemory} {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&(os.ModePerm|os.ModeSticky) != v.mode {
			t.Errorf("%s: mode %v, %v, want %v", v.name, info.Mode(), err, v.mode)
		}
		if noSwap, err := isNoSwap(path); err != nil || noSwap != wasNoSwap {
			t.Errorf("%s: noswap %v, %v, before %v", v.name, noSwap, err, wasNoSwap)
		}
		if v.isShare() {
			checkHalf(t, path, v.inodes)
			continue
		}
		size := resource.MustParse(v.size)
		bytes, files := fill(t, path)
		if bytes > int(size.Value()) || files > v.inodes {
			t.Errorf("%s: took %d bytes and %d files, want at most %s and %d", v.name, bytes, files, v.size, v.inodes)
		}
		t.Logf("%s: ENOSPC after %d bytes, and after %d files", v.name, bytes, files)
	}
	if nowBlocks, nowFiles := used(t, host); nowBlocks != blocks || nowFiles != files {
		t.Errorf("the host's file system: %d blocks and %d files, before %d and %d", nowBlocks, nowFiles, blocks, files)
	}
	wider := limited
	wider.ActiveThreadPercentage = 70
	s.configure(wider)
	s.await(wider)
	daemon := s.pid()
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another daemon serves", func() bool {
		seen, serves := s.observe()
		return serves && seen.Restarts == 1
	})
	if err := s.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// The pod of an older agent has no volumes for the sockets: its clients find them in the folder on the host, and its supervisor remounts nothing.
func TestEnsureFindsSockets(t *testing.T) {
	c := newCluster(t)
	agent := c.agent("agent-1")
	if folders := ensure(t, agent, shared); folders.Pipe != filepath.Join(c.dir, shared.Name, pipeName) {
		t.Errorf("without volumes: %s", folders.Pipe)
	}
	s, err := read[state](agent.folder(shared.Name), stateName)
	if err != nil {
		t.Fatal(err)
	}
	s.Volumes = true
	if err := write(nil, agent.folder(shared.Name), stateName, s); err != nil {
		t.Fatal(err)
	}
	if folders := ensure(t, agent, shared); folders.Pipe != "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~empty-dir/pipe" {
		t.Errorf("with volumes: %s", folders.Pipe)
	}
}
