package subject

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
)

// flag is the first argument of a program that is started as a subject; the second is its Spec as JSON.
const flag = "-subject"

// Requested runs the subject when the program was started as one, and reports whether it was.
func Requested(ctx context.Context) (bool, error) {
	if len(os.Args) != 3 || os.Args[1] != flag {
		return false, nil
	}
	var s Spec
	if err := json.Unmarshal([]byte(os.Args[2]), &s); err != nil {
		return true, fmt.Errorf("read what the subject is: %w", err)
	}
	return true, Serve(ctx, s, os.Stdin, os.Stdout)
}

// Process is a subject in a separate process. It ends with the process of the caller.
type Process struct {
	cmd      *exec.Cmd
	orders   io.WriteCloser
	outcomes *json.Decoder
	log      string
}

// Start starts this program again as a subject and waits until its caches are filled. Its log is kept
// in the folder.
func Start(ctx context.Context, s Spec, folder string) (*Process, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.CommandContext(ctx, "/proc/self/exe", flag, string(text)), log: filepath.Join(folder, string(s.Variant)+".log")}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	file, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // the child has its own
	p.cmd.Stderr = file
	p.orders, err = p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.outcomes = json.NewDecoder(bufio.NewReader(out))
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := p.outcome(); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// Schedule lets the subject schedule a batch whose pods exist, or will within the limit.
func (p *Process) Schedule(b fleet.Batch, limit time.Duration) (Outcome, error) {
	if err := json.NewEncoder(p.orders).Encode(order{Batch: b, Limit: limit}); err != nil {
		return Outcome{}, p.lost(err)
	}
	return p.outcome()
}

func (p *Process) outcome() (Outcome, error) {
	var o Outcome
	if err := p.outcomes.Decode(&o); err != nil {
		return o, p.lost(err)
	}
	if o.Failure != "" {
		return o, p.lost(errors.New(o.Failure))
	}
	return o, nil
}

// logged is the length of the end of a log that an error contains.
const logged = 2000

func (p *Process) lost(err error) error {
	text, read := os.ReadFile(p.log)
	if read != nil {
		return errors.Join(err, read)
	}
	return fmt.Errorf("%w; the end of the scheduler's log:\n%s", err, text[max(0, len(text)-logged):])
}

// Stop ends the subject.
func (p *Process) Stop() error {
	err := p.orders.Close()
	return errors.Join(err, p.cmd.Wait())
}
