package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tessera-gpu/tessera/e2e/env/lab/cgroup"
)

// Boot starts the machine with the given guest program and returns when its root is built and its services are about to
// start; Wait returns when they are ready. The machine's network namespace must exist. The machine outlives the calling
// process. After an error no process of the machine runs.
func (m Machine) Boot(ctx context.Context, guest string, spec Spec) error {
	if running, err := m.Running(); err != nil || running {
		return errors.Join(err, fmt.Errorf("boot %s: it runs already or cannot be told", spec.Name))
	}
	launch, err := m.launch(ctx, guest)
	if err != nil {
		return fmt.Errorf("boot %s: %w", spec.Name, err)
	}
	defer launch.close()
	stop := context.AfterFunc(ctx, func() { _ = launch.ready.SetReadDeadline(time.Unix(1, 0)) }) // ends the wait for the guest's answer
	defer stop()
	if err := m.handOver(launch, spec); err != nil {
		return errors.Join(fmt.Errorf("boot %s: %w", spec.Name, err), m.Kill(context.WithoutCancel(ctx)))
	}
	return nil
}

// launch is a started guest that waits for its spec.
type launch struct {
	pid   int
	spec  io.WriteCloser
	ready *os.File
	log   *os.File
}

func (l launch) close() {
	l.spec.Close()  //nolint:errcheck // closed already when all went well
	l.ready.Close() //nolint:errcheck // opened for reading
	l.log.Close()   //nolint:errcheck // the guest has its own copy
}

// launch starts the guest in new namespaces. The guest does nothing before it has its spec. If the calling process dies
// first, the guest reads an end of file and exits: no machine runs without a record.
func (m Machine) launch(ctx context.Context, guest string) (*launch, error) {
	log, err := os.OpenFile(filepath.Join(m.Logs(), "guest.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the guest's log: %w", err)
	}
	ready, guestReady, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a pipe to the guest: %w", err), log.Close())
	}
	defer guestReady.Close()             //nolint:errcheck // the guest has its own copy
	cmd := exec.Command(guest, m.folder) // without ctx: the machine outlives it
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{guestReady}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	spec, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a pipe to the guest: %w", err), log.Close(), ready.Close())
	}
	if err := errors.Join(ctx.Err(), m.Network().Do(cmd.Start)); err != nil {
		return nil, errors.Join(fmt.Errorf("start the guest: %w", err), log.Close(), ready.Close())
	}
	go func() { _ = cmd.Wait() }() // reaps the guest if it exits before this process
	return &launch{pid: cmd.Process.Pid, spec: spec, ready: ready, log: log}, nil
}

// handOver records the guest, adds it to its control groups, sends it the spec, and waits for its answer.
func (m Machine) handOver(l *launch, spec Spec) error {
	if err := m.adopt(l.pid); err != nil {
		return err
	}
	if err := errors.Join(json.NewEncoder(l.spec).Encode(spec), l.spec.Close()); err != nil {
		return fmt.Errorf("hand the spec to the guest: %w", err)
	}
	answer, err := io.ReadAll(l.ready)
	if err != nil {
		return fmt.Errorf("wait for the guest: %w", err)
	}
	if string(answer) != "ok" {
		return fmt.Errorf("the guest gave up: %s", m.lastWords())
	}
	return nil
}

// adopt records the machine's first process and adds it to the machine's control groups.
func (m Machine) adopt(pid int) error {
	identity, err := Identify(pid)
	if err != nil {
		return err
	}
	if err := m.remember(identity); err != nil {
		return err
	}
	tree, err := cgroup.Of(m.cgroup)
	if err != nil {
		return err
	}
	return tree.Add(pid)
}

// lastWords returns the last line of the guest's log.
func (m Machine) lastWords() string {
	text, err := os.ReadFile(filepath.Join(m.Logs(), "guest.log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
