// Package validate proves that the GPUs and MIG devices of a container compute. It runs in the pods of the installer's validations.
package validate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/tessera-gpu/tessera/dra-driver/cuda"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
)

// Config is what a validation works with.
type Config struct {
	// GPUs returns the GPUs of the container.
	GPUs func() ([]nvml.VisibleGPU, error)
	// Compute computes on one device in a process that sees no other device. The failure is the device's; an error means that the process could not run.
	Compute func(ctx context.Context, uuid string) (*cuda.Failure, error)
	// MIG requires that the container has a MIG device.
	MIG bool
	// Out receives a line for each device.
	Out io.Writer
	// Note receives, after a success, one line with the devices on which nothing was computed; nothing if all computed.
	Note func(text string) error
}

// maxParallel bounds how many devices compute at a time: each process of CUDA needs memory of the host.
const maxParallel = 4

// maxNamed bounds the failures in an error, which kubelet cuts at 2 KiB.
const maxNamed = 4

// Run validates every GPU and MIG device that the container has, and returns an error with those that failed. Devices on which nothing can be computed without
// a fault are reported as such in Out and Note and do not fail: a GPU in MIG mode without MIG devices, and one whose memory or exclusive use other processes
// have.
func Run(ctx context.Context, c Config) error {
	gpus, err := c.GPUs()
	if err != nil {
		return fmt.Errorf("list the GPUs of the container: %w: check the driver on the node, nvidia-smi shows its state", err)
	}
	targets := targetsOf(gpus)
	if len(targets) == 0 {
		return errors.New("the container has no GPU: its CDI devices were not injected; check the container runtime's CDI support and the agent's log")
	}
	if c.MIG && !hasInstance(gpus) {
		return errors.New("the container has no MIG device: its CDI devices were not injected; check the agent's log and nvidia-smi -L on the node")
	}
	skipped, err := report(c.Out, targets, c.judgeAll(ctx, targets))
	if err != nil || skipped == "" {
		return err
	}
	return c.Note(skipped)
}

func hasInstance(gpus []nvml.VisibleGPU) bool {
	return slices.ContainsFunc(gpus, func(g nvml.VisibleGPU) bool { return len(g.Instances) > 0 })
}

// target is one device to validate: a GPU, or one of its MIG devices.
type target struct {
	name, uuid string
	// whole is whether it is a GPU.
	whole bool
	// why is why nothing can be computed on the device, failed whether that is a fault. It computes if why is empty.
	why    string
	failed bool
	// exclusive is whether the contexts of one process only are permitted, free the memory in bytes that no process uses.
	exclusive bool
	free      uint64
}

func targetsOf(gpus []nvml.VisibleGPU) []target {
	var all []target
	for _, g := range gpus {
		whole := target{name: g.Name(), uuid: g.UUID, whole: true, exclusive: g.ExclusiveProcess, free: g.FreeBytes}
		switch {
		case g.Err != nil:
			whole.failed, whole.why = true, fmt.Sprintf("%v: reset the GPU or reboot the node; nvidia-smi and the kernel log have the cause", g.Err)
		case g.MIGMode:
			whole.why = inMIGMode
		}
		if g.Err != nil || len(g.Instances) == 0 {
			all = append(all, whole)
			continue
		}
		for _, mig := range g.Instances {
			all = append(all, target{name: mig.UUID + " of " + g.Name(), uuid: mig.UUID, free: mig.FreeBytes})
		}
	}
	return all
}

// verdict is what became of a device. One that neither computed nor failed was skipped.
type verdict struct {
	failed bool
	text   string
}

// Texts of devices that did not fail.
const (
	computed  = "computed"
	inMIGMode = "in MIG mode without MIG devices: the driver responds, nothing was computed"
)

// judgeAll validates the devices, at most maxParallel at a time.
func (c Config) judgeAll(ctx context.Context, targets []target) []verdict {
	verdicts, slots := make([]verdict, len(targets)), make(chan struct{}, maxParallel)
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if t.why != "" {
				verdicts[i] = verdict{t.failed, t.why}
				return
			}
			failure, err := c.Compute(ctx, t.uuid)
			if failure != nil && t.whole && c.isInMIGMode(t.uuid) {
				verdicts[i] = verdict{false, inMIGMode}
				return
			}
			verdicts[i] = judge(t, failure, err)
		})
	}
	all.Wait()
	return verdicts
}

// isInMIGMode reports whether the GPU is in MIG mode now. A claim can have changed the mode since the GPUs were listed, such as that of the validation of MIG
// devices, which runs at the same time. Then CUDA does not find the GPU.
func (c Config) isInMIGMode(uuid string) bool {
	gpus, err := c.GPUs()
	return err == nil && slices.ContainsFunc(gpus, func(g nvml.VisibleGPU) bool { return g.UUID == uuid && g.MIGMode })
}

// report writes a line for each device, and returns those that were skipped and an error with those that failed.
func report(out io.Writer, targets []target, verdicts []verdict) (string, error) {
	var failed, skipped []string
	for i, v := range verdicts {
		line := targets[i].name + ": " + v.text
		if _, err := fmt.Fprintln(out, line); err != nil {
			return "", err
		}
		switch {
		case v.failed:
			failed = append(failed, line)
		case v.text != computed:
			skipped = append(skipped, line)
		}
	}
	if len(failed) > 0 {
		return "", fmt.Errorf("%d of %d devices failed: %s", len(failed), len(targets), abridged(failed))
	}
	return abridged(skipped), nil
}

// abridged joins the first maxNamed lines and counts the others.
func abridged(lines []string) string {
	if count := len(lines) - maxNamed; count > 0 {
		lines = append(lines[:maxNamed:maxNamed], fmt.Sprintf("and %d more", count))
	}
	return strings.Join(lines, "; ")
}
