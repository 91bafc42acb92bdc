package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// legacy are the commands of MPS version 2: lines on the standard input of nvidia-cuda-mps-control(1).
type legacy struct{ *control }

func (d legacy) respond(ctx context.Context) error {
	_, err := d.servers(ctx)
	return err
}

func (d legacy) begin(ctx context.Context, c configuration) error {
	if err := d.change(ctx, configuration{}, c); err != nil {
		return err
	}
	if err := d.startServer(ctx); err != nil {
		return err
	}
	return d.admit()
}

func (d legacy) reaches(was, c configuration) bool { return c.reachableFrom(was) }

func (d legacy) stop(ctx context.Context) error {
	_, err := d.command(ctx, "quit")
	return err
}

// Modes of the folder of the sockets. Memory limits cannot be set before a daemon accepts connections: the variable CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in its
// environment has no effect (measured with driver 580). Until they are set, only root can connect.
const (
	closedMode = 0o700
	openMode   = 0o755
)

// admit lets clients connect.
func (d legacy) admit() error { return os.Chmod(d.pipe, openMode) }

// environment returns the limit that the daemon reads from its environment when it starts.
func (c configuration) environment() []string {
	var env []string
	if c.ActiveThreadPercentage > 0 {
		env = append(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="+strconv.Itoa(c.ActiveThreadPercentage))
	}
	return env
}

// command executes one line in the daemon and returns its output.
func (d legacy) command(ctx context.Context, line string) (string, error) {
	return d.call(ctx, line+"\n")
}

// startServer starts the daemon's server before any client connects. In exclusive-process mode the first process on the
// GPU excludes all others, so the server must precede any program that bypasses the daemon. With multiuserOption the
// single server runs as root.
func (d legacy) startServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.start)
	defer cancel()
	refusal, err := d.command(ctx, "start_server -uid 0")
	if err != nil {
		return err
	}
	for pause := firstPause; ; pause = min(2*pause, configPeriod) {
		err := d.active(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errNoServer) && refusal != "":
			return fmt.Errorf("check whether another program uses the device: %w%s", err, formatOutput(refusal))
		}
		select {
		case <-d.done:
			return d.exitError()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// errNoServer means that the daemon has no server.
var errNoServer = errors.New("the daemon starts no server")

// active returns nil if a server has the devices and accepts clients. Driver 535 has no command for that: a server that
// is listed is taken for active, and clients of one that still starts wait.
func (d legacy) active(ctx context.Context) error {
	servers, err := d.servers(ctx)
	if err != nil {
		return err
	}
	if len(servers) == 0 {
		return errNoServer
	}
	status, err := d.command(ctx, "get_server_status "+servers[0])
	unknown := strings.HasPrefix(status, "Unknown command")
	if err == nil && !unknown && !strings.EqualFold(status, "active") {
		err = fmt.Errorf("the daemon's server %s is not active%s", servers[0], formatOutput(status))
	}
	return err
}

// servers returns the process IDs of the daemon's servers.
func (d legacy) servers(ctx context.Context) ([]string, error) {
	answer, err := d.command(ctx, "get_server_list")
	if err != nil {
		return nil, err
	}
	pids := strings.Fields(answer)
	for _, pid := range pids {
		if _, err := strconv.Atoi(pid); err != nil {
			return nil, fmt.Errorf("get_server_list: not a list of process IDs%s", formatOutput(answer))
		}
	}
	return pids, nil
}
