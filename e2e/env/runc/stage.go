package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

// run is one run of a container: its duration, and its processor time, hooks included.
type run struct{ passed, worked time.Duration }

// runs are the runs by variant; those of one index belong to one turn.
type runs map[string][]run

func (r runs) samples(name string, of func(run) time.Duration) report.Samples {
	var samples report.Samples
	for _, run := range r[name] {
		samples = append(samples, of(run))
	}
	return samples
}

// differences returns the difference of two variants, turn by turn.
func (r runs) differences(more, less string, of func(run) time.Duration) report.Samples {
	var samples report.Samples
	for i, run := range r[more] {
		samples = append(samples, of(run)-of(r[less][i]))
	}
	return samples
}

// stage runs containers, one at a time.
type stage struct{ image, dir string }

// driverName is the name by which CUDA programs load the driver.
const driverName = "libcuda.so.1"

// check starts each variant once and verifies that the program finds the driver exactly where it should:
// a variant that does not work is not measured.
func (s stage) check(ctx context.Context, variants []variant) error {
	for _, v := range variants {
		_, err := s.start(ctx, v, driverName)
		var exit *exec.ExitError
		switch {
		case v.driver() && err != nil:
			return fmt.Errorf("%s: %w", v.name, err)
		case !v.driver() && err == nil:
			return fmt.Errorf("%s: the program finds the driver", v.name)
		case !v.driver() && !errors.As(err, &exit):
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return nil
}

// turns starts every variant in every round. Each is the first of a round equally often.
func (s stage) turns(ctx context.Context, variants []variant, rounds int) (runs, error) {
	all := runs{}
	for round := range rounds {
		for i := range variants {
			v := variants[(round+i)%len(variants)]
			took, err := s.start(ctx, v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
			all[v.name] = append(all[v.name], took)
		}
	}
	return all, nil
}

// start starts a container on a fresh copy of the image and waits for its end.
func (s stage) start(ctx context.Context, v variant, args ...string) (took run, err error) {
	spec := v.spec
	process := *spec.Process
	process.Args = append([]string{"/program"}, args...)
	spec.Process = &process
	text, err := json.Marshal(spec)
	if err != nil {
		return run{}, err
	}
	clean, err := s.mount()
	if err != nil {
		return run{}, err
	}
	defer func() { err = errors.Join(err, clean()) }()
	if err := os.WriteFile(filepath.Join(s.dir, "config.json"), text, 0o600); err != nil {
		return run{}, err
	}
	// When the bench is interrupted, the container runs to its end: runc then leaves no files.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "runc", "--root", filepath.Join(s.dir, "runc"), "run", "--bundle", s.dir, "bench-hook")
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	took = run{passed: time.Since(begin), worked: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if err != nil {
		return run{}, fmt.Errorf("runc: %w\n%s", err, out)
	}
	return took, ctx.Err()
}

// mount mounts an empty layer over the image, as runtimes do for each container; clean unmounts it.
func (s stage) mount() (clean func() error, err error) {
	root, layer := filepath.Join(s.dir, "rootfs"), filepath.Join(s.dir, "layer")
	upper, work := filepath.Join(layer, "upper"), filepath.Join(layer, "work")
	for _, folder := range []string{root, upper, work} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", s.image, upper, work)); err != nil {
		return nil, fmt.Errorf("mount the container's root: %w", err)
	}
	return func() error {
		return errors.Join(unix.Unmount(root, unix.MNT_DETACH), os.RemoveAll(layer))
	}, nil
}
