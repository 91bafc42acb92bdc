package guest

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// device is one standard node of /dev.
type device struct {
	name         string
	major, minor uint32
}

func devices() []device {
	return []device{
		{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"kmsg", 1, 11}, {"tty", 5, 0}, {"fuse", 10, 229},
	}
}

// makeDevices fills an empty /dev: the standard devices, a private devpts, shared memory, and the usual links. No other
// device of the host is included.
func makeDevices(dev string) error {
	for _, d := range devices() {
		path := filepath.Join(dev, d.name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("make device %s: %w", d.name, err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			return fmt.Errorf("make device %s: %w", d.name, err)
		}
	}
	for _, fs := range []struct{ name, kind, options string }{
		{"pts", "devpts", "newinstance,ptmxmode=0666,mode=620,gid=5"},
		{"shm", "tmpfs", "mode=1777"},
		{"mqueue", "mqueue", ""},
	} {
		path := filepath.Join(dev, fs.name)
		if err := os.Mkdir(path, 0o755); err != nil {
			return fmt.Errorf("make a mount point: %w", err)
		}
		if err := mount(fs.kind, path, fs.kind, unix.MS_NOSUID|unix.MS_NOEXEC, fs.options); err != nil {
			return err
		}
	}
	for _, link := range []struct{ name, target string }{
		{"ptmx", "pts/ptmx"}, {"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
	} {
		if err := os.Symlink(link.target, filepath.Join(dev, link.name)); err != nil {
			return fmt.Errorf("make link /dev/%s: %w", link.name, err)
		}
	}
	return nil
}
