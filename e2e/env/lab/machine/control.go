package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Status returns the state of the machine's services. It returns ErrDown if the machine does not run.
func (m Machine) Status(ctx context.Context) ([]ServiceStatus, error) {
	reply, err := m.ask(ctx, Request{Operation: OpStatus})
	return reply.Services, err
}

// Wait returns when every service that was not stopped is ready.
func (m Machine) Wait(ctx context.Context) error {
	reply, err := m.ask(ctx, Request{Operation: OpWait})
	if err != nil && len(reply.Services) > 0 {
		return fmt.Errorf("%w: %v", err, reply.Services)
	}
	return err
}

// Control performs one operation on one service and waits for its effect.
func (m Machine) Control(ctx context.Context, operation Operation, service string) error {
	if _, err := m.ask(ctx, Request{Operation: operation, Service: service}); err != nil {
		return fmt.Errorf("%s %s: %w", operation, service, err)
	}
	return nil
}

// ask sends one request to the guest. When ctx ends the connection is closed, which ends the guest's wait.
func (m Machine) ask(ctx context.Context, request Request) (Reply, error) {
	conn, err := m.dial(ctx)
	if err != nil {
		return Reply{}, err
	}
	defer conn.Close() //nolint:errcheck // the reply was read
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return Reply{}, fmt.Errorf("ask the guest: %w", errors.Join(ctx.Err(), err))
	}
	var reply Reply
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return Reply{}, fmt.Errorf("ask the guest: %w", errors.Join(ctx.Err(), err))
	}
	if reply.Error != "" {
		return reply, errors.New(reply.Error)
	}
	return reply, nil
}

// dial connects through a file descriptor of the folder: the path of a socket is limited to 107 bytes, that of the
// folder is not.
func (m Machine) dial(ctx context.Context) (net.Conn, error) {
	folder, err := unix.Open(m.folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, ErrDown
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", m.folder, err)
	}
	defer unix.Close(folder) //nolint:errcheck // opened for reading
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", folder, ControlSocket))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, ErrDown
	}
	if err != nil {
		return nil, fmt.Errorf("reach the guest: %w", err)
	}
	return conn, nil
}
