package devnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
)

// Config has the locations and the loader of modules.
type Config struct {
	// Roots are the paths of the host's file systems in this process.
	Roots driverroot.Roots
	// Dev is the folder of device nodes of this process, such as /dev.
	Dev string
	// Load loads a kernel module with its dependencies.
	Load func(ctx context.Context, module string) error
}

// Maker makes device nodes. It is safe for concurrent use.
type Maker struct {
	config Config
	mu     sync.Mutex
}

// New returns a Maker.
func New(config Config) *Maker { return &Maker{config: config} }

// Ensure loads nvidia-uvm if the kernel lacks it, and makes the nodes that are missing or have other numbers than the kernel. It is called before
// each connection to the driver and before the CDI specs are written; if nothing is missing, it costs some dozen system calls. Without a loaded
// driver it does nothing. Two agents on one node may call it at the same time.
func (m *Maker) Ensure(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	own, err := m.config.Roots.OwnNodes()
	if err == nil && own.Missing != "" {
		if err := m.config.Load(ctx, own.Missing); err != nil {
			return fmt.Errorf("load the kernel module %s, without which no CUDA program starts: %w", own.Missing, err)
		}
		klog.FromContext(ctx).Info("Kernel module loaded", "module", own.Missing)
		own, err = m.config.Roots.OwnNodes()
		if err == nil && own.Missing != "" {
			err = fmt.Errorf("%s is not among the kernel's character devices after modprobe: read the kernel log of the node (dmesg)", own.Missing)
		}
	}
	if err != nil {
		return err
	}
	for _, node := range own.Nodes {
		if err := m.ensure(ctx, node, own.Access); err != nil {
			return fmt.Errorf("create device node %s: %w", node.Path, err)
		}
	}
	return nil
}

// ensure makes one node, unless it exists with these numbers. Another file at the path is replaced at once, so that a program finds one or the other.
func (m *Maker) ensure(ctx context.Context, node driverroot.Node, access driverroot.Access) error {
	path := filepath.Join(m.config.Dev, strings.TrimPrefix(node.Path, "/dev/"))
	number := unix.Mkdev(node.Major, node.Minor)
	var stat unix.Stat_t
	switch err := unix.Lstat(path, &stat); {
	case err == nil && stat.Mode&unix.S_IFMT == unix.S_IFCHR && stat.Rdev == number:
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := fmt.Sprintf("%s.tessera-%d", path, os.Getpid())
	defer os.Remove(temporary) //nolint:errcheck // absent after the rename
	if err := unix.Mknod(temporary, unix.S_IFCHR, int(number)); err != nil {
		return err
	}
	if err := errors.Join(os.Chown(temporary, int(access.UID), int(access.GID)), os.Chmod(temporary, access.Mode), os.Rename(temporary, path)); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Device node made", "path", path, "major", node.Major, "minor", node.Minor)
	return nil
}
