package maintenance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/host/lock"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The files of a Gate: the closure, the lock that all calls share while they prepare (there is another one for each GPU), the lock of the
// writer, and the folder of the outcomes of resets. Agents of other versions use the same names.
const (
	closureFile = "closure.json"
	callsFile   = "calls.lock"
	writeFile   = "write.lock"
	resetsDir   = "resets"
)

// Gate refuses claims while GPUs are out of service. All agents of the node share it through its folder; it is safe for concurrent use by
// all of them. It implements prepare.Gate, and stores the outcomes of resets.
type Gate struct {
	files disk.FileSystem
	dir   string
	// namespace is where the installer's validations run.
	namespace string
	// leads reports whether this process may write.
	leads func() bool
	// deadline is until when calls wait for the GPUNode to be read for the first time; read is closed when it was.
	deadline time.Time
	read     chan struct{}
	once     sync.Once
}

var _ prepare.Gate = (*Gate)(nil)

// firstReadTimeout is how long calls wait after the start for the GPUNode to be read.
const firstReadTimeout = 5 * time.Second

// errNotLeading is returned by a write when another agent leads.
var errNotLeading = errors.New("a newer agent leads")

// OpenGate returns the gate in the folder, which is created if it does not exist. The namespace is that of the agent's pod; leads reports
// whether this agent is the newest of the node.
func OpenGate(files disk.FileSystem, dir, namespace string, leads func() bool) (*Gate, error) {
	if err := disk.MakeDurableFolder(files, filepath.Join(dir, resetsDir), 0o700); err != nil {
		return nil, fmt.Errorf("open the gate: %w", err)
	}
	return &Gate{files: files, dir: dir, namespace: namespace, leads: leads, deadline: time.Now().Add(firstReadTimeout), read: make(chan struct{})}, nil
}

// Enter admits a claim or returns a prepare.OutOfService. Right after the start it waits up to firstReadTimeout for the GPUNode to be
// read; if that takes longer, the closure on disk applies.
func (g *Gate) Enter(ctx context.Context, claim prepare.Ref, gpus []string) (leave func(), err error) {
	if err := g.waitForFirstRead(ctx); err != nil {
		return nil, err
	}
	var held []disk.File
	leave = func() {
		for _, file := range held {
			_ = file.Close() // nothing was written to it
		}
	}
	for _, name := range append([]string{callsFile}, callsFilesOf(gpus)...) {
		file, err := g.lockShared(name)
		if err != nil {
			leave()
			return nil, fmt.Errorf("pass the gate: %w", err)
		}
		held = append(held, file)
	}
	// The closure is read while the locks are held: when they are free later, no call remains that read an older closure.
	closure, err := g.Closure()
	if err == nil {
		err = closure.refusal(claim, gpus, g.namespace)
	}
	if err != nil {
		leave()
		if errors.Is(err, prepare.ErrOutOfService) {
			return nil, err
		}
		return nil, fmt.Errorf("pass the gate: %w", err)
	}
	return leave, nil
}

// lockShared takes a lock that calls share.
func (g *Gate) lockShared(name string) (disk.File, error) {
	file, err := lock.Open(g.files, g.path(name))
	if err != nil {
		return nil, err
	}
	if err := lock.Wait(file, lock.Shared); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// callsFilesOf returns the lock files of calls for claims of the GPUs. Names may come from the GPUNode, so only their last path element
// is used.
func callsFilesOf(gpus []string) []string {
	var names []string
	for _, name := range gpus {
		names = append(names, "calls-"+filepath.Base(name)+".lock")
	}
	return names
}

// waitForFirstRead returns when the GPUNode was read once, or the deadline has passed.
func (g *Gate) waitForFirstRead(ctx context.Context) error {
	select {
	case <-g.read:
		return nil
	default:
	}
	limit := time.NewTimer(time.Until(g.deadline))
	defer limit.Stop()
	select {
	case <-g.read:
	case <-limit.C:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the GPUNode to be read: %w", context.Cause(ctx))
	}
	return nil
}

// setClosure stores the closure durably; calls from then on are admitted by it. Only the Enforcer of the leading agent calls it.
func (g *Gate) setClosure(closure Closure) error {
	file, err := lock.Open(g.files, g.path(writeFile))
	if err != nil {
		return fmt.Errorf("set the gate: %w", err)
	}
	defer file.Close() //nolint:errcheck // nothing was written to it
	if err := lock.Wait(file, lock.Exclusive); err != nil {
		return fmt.Errorf("set the gate: %w", err)
	}
	// Checked while the lock is held: an agent that becomes the leader from here on writes later.
	if !g.leads() {
		return fmt.Errorf("set the gate: %w", errNotLeading)
	}
	if previous, err := g.Closure(); err != nil || !previous.equal(closure) {
		if err := g.writeClosure(closure); err != nil {
			return fmt.Errorf("set the gate: %w", err)
		}
	}
	g.once.Do(func() { close(g.read) })
	return nil
}

// drained reports whether every call has ended, in any agent, that may have been admitted before the closure was last set: every call for
// claims of the GPUs, or without GPUs every call.
func (g *Gate) drained(gpus ...string) (bool, error) {
	names := callsFilesOf(gpus)
	if len(names) == 0 {
		names = []string{callsFile}
	}
	for _, name := range names {
		if free, err := g.isFree(name); err != nil || !free {
			return false, err
		}
	}
	return true, nil
}

// isFree reports whether no call holds the lock.
func (g *Gate) isFree(name string) (bool, error) {
	file, err := lock.Open(g.files, g.path(name))
	if err != nil {
		return false, fmt.Errorf("check calls at the gate: %w", err)
	}
	defer file.Close() //nolint:errcheck // nothing was written to it
	err = lock.Try(file, lock.Exclusive, lock.Range{})
	switch {
	case errors.Is(err, lock.ErrHeld):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("check calls at the gate: %w", err)
	}
	return true, nil
}

// Closure returns the closure that applies. Before the first one is written, all GPUs are in service.
func (g *Gate) Closure() (Closure, error) {
	text, err := os.ReadFile(g.path(closureFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Closure{}, nil
	}
	if err != nil {
		return Closure{}, err
	}
	var closure Closure
	if err := json.Unmarshal(text, &closure); err != nil {
		return Closure{}, fmt.Errorf("%s: %w", g.path(closureFile), err)
	}
	return closure, nil
}

// writeClosure replaces the closure's file.
func (g *Gate) writeClosure(closure Closure) error {
	text, err := json.Marshal(closure)
	if err != nil {
		return err
	}
	return atomicfile.Write(g.path(closureFile), text, g.fileOptions())
}

// fileOptions makes writes durable. Each file of the gate has at most one writer at a time.
func (g *Gate) fileOptions() atomicfile.Options {
	return atomicfile.Options{Mode: 0o600, SingleWriter: true, Files: g.files}
}

func (g *Gate) path(name string) string { return filepath.Join(g.dir, name) }
