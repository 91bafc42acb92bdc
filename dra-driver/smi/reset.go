package smi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/smi"
)

// persistenceTimeout is how long it may take to switch persistence mode on again, for which there is time also when the reset took all.
const persistenceTimeout = 30 * time.Second

// Reset resets GPUs together (nvidia-smi --gpu-reset), by their PCI addresses as gpu.GPU.PCI has them: a GPU that does not answer has no
// UUID and no number, but always an address. It requires root, and that none of the GPUs is open: no program, no
// monitoring, and not the caller.
//
// Persistence mode has a GPU open, too: where it is on, it is switched off for the reset and on again after it, whatever became of it.
//
// A reset ends all MIG devices and applies what is pending. Errors carry what the program said. They wrap gpu.ErrBusy when a GPU is in
// use, gpu.ErrUnsupported when one cannot be reset, gpu.ErrLost when one does not answer even for that and gpu.ErrNoDriver when there is
// no driver. After an error, or when ctx ends, some of the GPUs may have been reset; nvidia-smi may even be at it still, when it hangs in the
// driver and cannot be killed.
func (t *Tool) Reset(ctx context.Context, addresses []string) error {
	if err := t.reset(ctx, addresses); err != nil {
		return fmt.Errorf("reset %s: %w", strings.Join(addresses, ", "), err)
	}
	return nil
}

func (t *Tool) reset(ctx context.Context, addresses []string) error {
	if len(addresses) == 0 {
		return errors.New("no GPU is named")
	}
	program, err := t.program(ctx)
	if err != nil {
		return err
	}
	persistent, err := release(ctx, program, busIDs(addresses))
	if err == nil {
		err = resetOnly(ctx, program, busIDs(addresses))
	}
	if len(persistent) > 0 {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistenceTimeout)
		_, again := run(limited, program, "-pm", "1", "-i", strings.Join(persistent, ","))
		cancel()
		err = errors.Join(err, again)
	}
	return err
}

// release switches persistence mode off and returns the GPUs that had it on. One that does not answer is left to the reset.
func release(ctx context.Context, program smi.Program, gpus []string) ([]string, error) {
	var persistent []string
	for _, id := range gpus {
		mode, err := run(ctx, program, "-i", id, "--query-gpu=persistence_mode", "--format=csv,noheader")
		if err != nil && ctx.Err() != nil {
			return persistent, err
		}
		if err != nil || strings.TrimSpace(mode) != "Enabled" {
			continue
		}
		persistent = append(persistent, id)
		if _, err := run(ctx, program, "-pm", "0", "-i", id); err != nil {
			return persistent, err
		}
	}
	return persistent, nil
}

func resetOnly(ctx context.Context, program smi.Program, gpus []string) error {
	output, err := run(ctx, program, "--gpu-reset", "-i", strings.Join(gpus, ","))
	if err != nil && strings.Contains(err.Error(), "No devices were found") {
		return fmt.Errorf("%w: %w", err, gpu.ErrLost)
	}
	if err == nil && strings.Contains(output, "could not be reset") {
		return fmt.Errorf("%s: %s", program.Path, strings.Join(strings.Fields(output), " "))
	}
	return err
}

// busIDs returns the addresses as nvidia-smi writes them: 0000:3b:00.0 is 00000000:3B:00.0.
func busIDs(addresses []string) []string {
	ids := slices.Clone(addresses)
	for i, address := range ids {
		domain, rest, _ := strings.Cut(address, ":")
		ids[i] = strings.ToUpper(strings.Repeat("0", max(0, 8-len(domain))) + domain + ":" + rest)
	}
	return ids
}
