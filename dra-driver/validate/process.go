package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/dra-driver/cuda"
	hostcommand "github.com/tessera-gpu/tessera/internal/host/command"
)

// deviceTimeout bounds the computation on one device. Without persistence mode a GPU takes seconds to initialize; a computation that hangs in the
// driver does not return.
const deviceTimeout = 2 * time.Minute

// InProcess returns a function for Config.Compute that runs a command for each device, with CUDA_VISIBLE_DEVICES set to its UUID. The command prints a
// Failure as JSON, or nothing if the device computes. A process for each device is required because CUDA reads the variable once and uses one MIG device
// in a process; it also ends what hangs or crashes in the driver's library.
func InProcess(program string, args ...string) func(ctx context.Context, uuid string) (*cuda.Failure, error) {
	return func(ctx context.Context, uuid string) (*cuda.Failure, error) {
		ctx, cancel := context.WithTimeout(ctx, deviceTimeout)
		defer cancel()
		command := exec.CommandContext(ctx, program, append(args, uuid)...)
		// Without the cache, the driver's compiler is a part of what is validated.
		command.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+uuid, "CUDA_CACHE_DISABLE=1")
		var stdout, stderr bytes.Buffer
		command.Stdout, command.Stderr = &stdout, &stderr
		command.WaitDelay = hostcommand.OutputDelay
		err := command.Run()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("CUDA did not return within %v", deviceTimeout)
		}
		if err != nil {
			return nil, processError(err, stderr.String())
		}
		if stdout.Len() == 0 {
			return nil, nil
		}
		failure := &cuda.Failure{}
		if err := json.Unmarshal(stdout.Bytes(), failure); err != nil {
			return nil, fmt.Errorf("decode the result of the computing process: %w", err)
		}
		return failure, nil
	}
}

// processError returns why a process ended, with the last line that it printed.
func processError(err error, stderr string) error {
	stderr = strings.TrimSpace(stderr)
	if stderr == "" {
		return fmt.Errorf("the computing process ended: %w", err)
	}
	return fmt.Errorf("the computing process ended: %w: %s", err, stderr[strings.LastIndex(stderr, "\n")+1:])
}
