// Package guest is the first process of a machine: it builds the root folder, starts and restarts the services, reaps
// orphaned processes, and serves the control socket. It does not depend on Kubernetes.
package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// Run runs a machine. It must be the first process of new PID, mount, UTS and IPC namespaces. folder is the machine's
// folder. The spec is read from input; an early end of file means that the starting process has ended. When services
// are about to start, "ok" is written to ready. Run returns after SIGTERM, when the services have ended.
func Run(folder string, input io.Reader, ready io.WriteCloser) error {
	var spec machine.Spec
	if err := json.NewDecoder(input).Decode(&spec); err != nil {
		return fmt.Errorf("read the machine's spec: %w", err)
	}
	logs, listener, err := openOutside(folder)
	if err != nil {
		return err
	}
	if err := enterRoot(folder, spec); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer cancel()
	reaper := newReaper()
	go reaper.run()
	services, err := newServices(spec, reaper, logs)
	if err != nil {
		return err
	}
	services.start()
	go serve(ctx, listener, services)
	if _, err := io.WriteString(ready, "ok"); err != nil {
		return fmt.Errorf("report that the machine is up: %w", err)
	}
	if err := ready.Close(); err != nil {
		return fmt.Errorf("report that the machine is up: %w", err)
	}
	<-ctx.Done()
	services.stop()
	return nil
}

// openOutside opens the files outside the new root that are needed inside: the log folder and the control socket.
func openOutside(folder string) (*os.Root, net.Listener, error) {
	if err := os.Chdir(folder); err != nil { // the path of a socket is limited: a relative path fits for any folder
		return nil, nil, fmt.Errorf("enter the machine's folder: %w", err)
	}
	logs, err := os.OpenRoot(machine.LogFolder)
	if err != nil {
		return nil, nil, fmt.Errorf("open the log folder: %w", err)
	}
	if err := os.RemoveAll(machine.ControlSocket); err != nil {
		return nil, nil, fmt.Errorf("remove the last boot's control socket: %w", err)
	}
	listener, err := net.Listen("unix", machine.ControlSocket)
	if err != nil {
		return nil, nil, fmt.Errorf("listen on the control socket: %w", err)
	}
	return logs, listener, nil
}
