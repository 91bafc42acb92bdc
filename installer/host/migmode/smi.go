package migmode

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/internal/host/smi"
)

// SMI implements Driver with the driver's nvidia-smi.
type SMI struct{ Program smi.Program }

// GPUs returns all GPUs with their modes.
func (s SMI) GPUs(ctx context.Context) ([]GPU, error) {
	output, err := s.run(ctx, "--query-gpu=uuid,mig.mode.current,mig.mode.pending", "--format=csv,noheader")
	if err != nil {
		return nil, err
	}
	var gpus []GPU
	for line := range strings.Lines(output) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		fields := strings.Split(line, ",")
		if len(fields) != 3 {
			return nil, fmt.Errorf("read the GPUs' modes: nvidia-smi printed %q", strings.TrimSpace(line))
		}
		gpus = append(gpus, GPU{UUID: strings.TrimSpace(fields[0]), Current: mode(fields[1]), Pending: mode(fields[2])})
	}
	return gpus, nil
}

// mode parses nvidia-smi's value; [N/A] and [Not Supported] mean no MIG.
func mode(text string) Mode {
	switch m := Mode(strings.TrimSpace(text)); m {
	case Enabled, Disabled:
		return m
	}
	return ""
}

// Set requests a mode.
func (s SMI) Set(ctx context.Context, uuid string, mode Mode) error {
	number := "0"
	if mode == Enabled {
		number = "1"
	}
	_, err := s.run(ctx, "-i", uuid, "-mig", number)
	return err
}

// Reset resets GPUs together: GPUs connected by NVLink cannot be reset individually.
func (s SMI) Reset(ctx context.Context, uuids []string) error {
	_, err := s.run(ctx, "-i", strings.Join(uuids, ","), "--gpu-reset")
	return err
}

func (s SMI) run(ctx context.Context, arguments ...string) (string, error) {
	output, err := s.Program.Run(ctx, arguments...)
	if errors.Is(err, smi.ErrInUse) {
		return "", fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return output, err
}
