package runc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
)

// Stage starts containers, one at a time, each on a fresh copy of the image.
type Stage struct {
	// Image is the folder of the image, which stays as it is. Dir is a folder for the stage alone.
	Image, Dir string
	// Input is the input of the containers; nil for none.
	Input *os.File
}

// Result is a container that has ended.
type Result struct {
	// Output is what the container, its hooks and runc have written. Status is the exit status of its process, or runc's 1.
	Output string
	Status int
	// Passed is its duration, Worked its processor time, hooks included.
	Passed, Worked time.Duration
}

// Spec returns the configuration of an unprivileged container without network.
func Spec() oci.Spec {
	return oci.Spec{
		Version: "1.1.0",
		Process: &oci.Process{Cwd: "/", User: oci.User{UID: 1000, GID: 1000}, NoNewPrivileges: true},
		Root:    &oci.Root{Path: "rootfs", Readonly: true},
		Mounts: []oci.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
		},
		Linux: &oci.Linux{
			Namespaces: []oci.LinuxNamespace{
				{Type: oci.PIDNamespace}, {Type: oci.MountNamespace}, {Type: oci.IPCNamespace}, {Type: oci.NetworkNamespace}, {Type: oci.UTSNamespace},
			},
		},
	}
}

// Inject adds the devices with these CDI names, whose specs are in the folder, to the configuration as container runtimes do.
func Inject(spec *oci.Spec, folder string, names ...string) error {
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(folder), cdiapi.WithAutoRefresh(false))
	if err != nil {
		return err
	}
	if unresolved, err := cache.InjectDevices(spec, names...); err != nil {
		return fmt.Errorf("inject %v: %w, unresolved %v, spec errors %v", names, err, unresolved, cache.GetErrors())
	}
	return nil
}

// Run starts a container with these arguments and waits for its end. A container that ends with a status other than 0 is no error.
func (s Stage) Run(ctx context.Context, spec oci.Spec, args ...string) (result Result, err error) {
	process := *spec.Process
	process.Args = args
	spec.Process = &process
	text, err := json.Marshal(spec)
	if err != nil {
		return Result{}, err
	}
	clean, err := s.mount()
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, clean()) }()
	if err := os.WriteFile(filepath.Join(s.Dir, "config.json"), text, 0o600); err != nil {
		return Result{}, err
	}
	// When the caller is interrupted, the container runs to its end: runc then leaves no files.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "runc", "--root", filepath.Join(s.Dir, "runc"), "run", "--bundle", s.Dir, filepath.Base(s.Dir))
	if s.Input != nil {
		cmd.Stdin = s.Input
	}
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{}, fmt.Errorf("runc: %w", err)
	}
	state := cmd.ProcessState
	return Result{string(out), state.ExitCode(), time.Since(begin), state.UserTime() + state.SystemTime()}, ctx.Err()
}

// mount mounts an empty layer over the image, as runtimes do for each container; clean unmounts it.
func (s Stage) mount() (clean func() error, err error) {
	root, layer := filepath.Join(s.Dir, "rootfs"), filepath.Join(s.Dir, "layer")
	upper, work := filepath.Join(layer, "upper"), filepath.Join(layer, "work")
	for _, folder := range []string{root, upper, work} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", s.Image, upper, work)); err != nil {
		return nil, fmt.Errorf("mount the container's root: %w", err)
	}
	return func() error {
		return errors.Join(unix.Unmount(root, unix.MNT_DETACH), os.RemoveAll(layer))
	}, nil
}
