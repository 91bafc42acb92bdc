package gpunode

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
	"github.com/tessera-gpu/tessera/internal/host/lock"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The files of a Gate: the word that counts, the locks that calls share while they prepare (one for all, one for each GPU), the lock of
// whoever writes, and the folder of what became of resets.
const (
	wordFile  = "closure.json"
	callsFile = "calls.lock"
	writeFile = "write.lock"
	resetsDir = "resets"
)

// Gate holds up claims while the GPUs are out of service. It is one for all agents of the node, in a folder, and safe for
// concurrent use by all of them. It implements prepare.Gate. It also keeps what became of resets.
type Gate struct {
	dir string
	// namespace is where the installer's validations are.
	namespace string
	// leads reports whether this process may write.
	leads func() bool
	// deadline is until when calls wait for the first word of the GPUNode.
	deadline time.Time
	known    chan struct{}
	once     sync.Once
}

var _ prepare.Gate = (*Gate)(nil)

// firstWord is how long the first calls wait for the GPUNode to be read.
const firstWord = 5 * time.Second

// errNotLeading says that another agent has to write.
var errNotLeading = errors.New("a newer agent leads")

// OpenGate returns the gate of the folder, which is created when it is missing. The namespace is the one of the agent's own
// pod; leads reports whether this agent is the newest of the node.
func OpenGate(dir, namespace string, leads func() bool) (*Gate, error) {
	if err := os.MkdirAll(filepath.Join(dir, resetsDir), 0o700); err != nil {
		return nil, fmt.Errorf("open the gate: %w", err)
	}
	return &Gate{dir: dir, namespace: namespace, leads: leads, deadline: time.Now().Add(firstWord), known: make(chan struct{})}, nil
}

// Enter lets a claim pass or returns a prepare.OutOfService. The first calls after the start wait a few seconds for the GPUNode
// to be read; when that does not come, what was last known counts.
func (g *Gate) Enter(ctx context.Context, claim prepare.Ref, gpus []string) (leave func(), err error) {
	if err := g.wait(ctx); err != nil {
		return nil, err
	}
	var held []*os.File
	leave = func() {
		for _, file := range held {
			_ = file.Close() // a file that was only locked has nothing to report
		}
	}
	for _, name := range append([]string{callsFile}, callsOf(gpus)...) {
		file, err := g.share(name)
		if err != nil {
			leave()
			return nil, fmt.Errorf("pass the gate: %w", err)
		}
		held = append(held, file)
	}
	// Read with the locks held: whoever finds them free later knows that nobody is left who read an older word.
	word, err := g.Word()
	if err == nil {
		err = word.refusal(claim, gpus, g.namespace)
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

// share takes the lock that calls share.
func (g *Gate) share(name string) (*os.File, error) {
	file, err := lock.Open(g.path(name))
	if err != nil {
		return nil, err
	}
	if err := lock.Wait(file, lock.Shared); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// callsOf are the locks of the calls for claims of the GPUs. Names of GPUs also come from the GPUNode: what is no file's name there is no GPU's.
func callsOf(gpus []string) []string {
	var names []string
	for _, name := range gpus {
		names = append(names, "calls-"+filepath.Base(name)+".lock")
	}
	return names
}

// wait returns when the GPUNode was read once, or was not in time.
func (g *Gate) wait(ctx context.Context) error {
	select {
	case <-g.known:
		return nil
	default:
	}
	limit := time.NewTimer(time.Until(g.deadline))
	defer limit.Stop()
	select {
	case <-g.known:
	case <-limit.C:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the GPUNode to be read: %w", context.Cause(ctx))
	}
	return nil
}

// set makes the word the one that counts, durably. The keeper of the leading agent calls it.
func (g *Gate) set(word Closure) error {
	file, err := lock.Open(g.path(writeFile))
	if err != nil {
		return fmt.Errorf("set the gate: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only locked
	if err := lock.Wait(file, lock.Exclusive); err != nil {
		return fmt.Errorf("set the gate: %w", err)
	}
	// Asked with the lock held: a newer agent that joins from here on writes after us.
	if !g.leads() {
		return fmt.Errorf("set the gate: %w", errNotLeading)
	}
	if before, err := g.Word(); err != nil || !before.equal(word) {
		if err := g.write(word); err != nil {
			return fmt.Errorf("set the gate: %w", err)
		}
	}
	g.once.Do(func() { close(g.known) })
	return nil
}

// quiet reports whether every call has ended that may have passed before the last set, in any agent: every call for claims of the GPUs, and every
// call at all without any.
func (g *Gate) quiet(gpus ...string) (bool, error) {
	names := callsOf(gpus)
	if len(names) == 0 {
		names = []string{callsFile}
	}
	for _, name := range names {
		if quiet, err := g.unused(name); err != nil || !quiet {
			return false, err
		}
	}
	return true, nil
}

func (g *Gate) unused(name string) (bool, error) {
	file, err := lock.Open(g.path(name))
	if err != nil {
		return false, fmt.Errorf("look at the gate: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only locked
	err = lock.Try(file, lock.Exclusive, lock.Range{})
	switch {
	case errors.Is(err, lock.ErrHeld):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at the gate: %w", err)
	}
	return true, nil
}

// Word returns the word that counts. Where there is none yet, the GPUs are in service.
func (g *Gate) Word() (Closure, error) {
	text, err := os.ReadFile(g.path(wordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Closure{}, nil
	}
	if err != nil {
		return Closure{}, err
	}
	var word Closure
	if err := json.Unmarshal(text, &word); err != nil {
		return Closure{}, fmt.Errorf("%s: %w", g.path(wordFile), err)
	}
	return word, nil
}

// write replaces the word's file.
func (g *Gate) write(word Closure) error {
	text, err := json.Marshal(word)
	if err != nil {
		return err
	}
	return atomicfile.Write(g.path(wordFile), text, onDisk())
}

// onDisk is how the files of the gate are written: durably, and one writer at a time for each.
func onDisk() atomicfile.Options { return atomicfile.Options{Mode: 0o600, SingleWriter: true} }

func (g *Gate) path(name string) string { return filepath.Join(g.dir, name) }
