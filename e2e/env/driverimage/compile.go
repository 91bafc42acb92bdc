package driverimage

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed nvidia-driver
var entryPoint []byte

// EntryPoint is the text of the entry point.
func EntryPoint() string { return string(entryPoint) }

// scratchPrefix begins the names of the folders in which modules are compiled.
const scratchPrefix = "compile-"

// entryPath is the path of the entry point in the images.
const entryPath = "/usr/local/bin/nvidia-driver"

// container runs `nvidia-driver build` as the first process of a new PID and mount namespace, with the layers of the image that compiles as its root:
// the folder of the writable layer, the lower layers, and the kernel are its arguments.
const container = `
mount -t overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
exec chroot "$1/root" nvidia-driver build --kernel "$3"`

// modules is the folder of the compiled modules of a driver, at the path below which images have it.
func (b builder) modules(d Driver, kind string) string {
	return filepath.Join(b.out, "modules", d.Version, modulesPath, b.kernel, kind)
}

// modulesPath is the folder of the modules in images, with subfolders by kernel and type.
const modulesPath = "/opt/nvidia/modules"

// compile compiles the modules of a driver in the image that compiles, unless they are in the cache.
func (b builder) compile(ctx context.Context, d Driver, kind string, progress io.Writer) (err error) {
	target := b.modules(d, kind)
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	start := time.Now()
	fmt.Fprintf(progress, "compiling the %s modules of driver %s for kernel %s, a few minutes, once\n", kind, d.Version, b.kernel) //nolint:errcheck // for the eye
	scratch, err := os.MkdirTemp(b.out, scratchPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	upper := filepath.Join(scratch, "upper")
	for _, folder := range []string{upper + filepath.Dir(entryPath), upper + "/etc", scratch + "/work", scratch + "/root", filepath.Dir(target)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	resolver, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(upper+"/etc/resolv.conf", resolver, 0o644), os.WriteFile(upper+entryPath, entryPoint, 0o755)); err != nil {
		return err
	}
	layers := []string{d.Sources, filepath.Join(b.folder, "build")}
	if b.headers != "" {
		layers = append([]string{b.headers}, layers...)
	}
	lower := strings.Join(layers, ":")
	c := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", container, "sh", scratch, lower, b.kernel)
	c.Env = append(os.Environ(), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DRIVER_VERSION="+d.Version, "KERNEL_MODULE_TYPE="+kind)
	c.Stdout, c.Stderr = progress, progress
	if err := c.Run(); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(upper, modulesPath, b.kernel, kind), target); err != nil {
		return err
	}
	fmt.Fprintf(progress, "compiled in %s\n", time.Since(start).Round(time.Second)) //nolint:errcheck // for the eye
	return nil
}
