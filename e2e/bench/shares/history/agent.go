package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// errKilled is the result of every call of an agent that was killed: nothing that it would have done afterward has happened.
var errKilled = errors.New("the agent was killed")

// node is what the agents of a node share, and implements the ports of the limiter.
type node struct {
	*kernel
	folder string

	mu      sync.Mutex
	records map[string]prepare.Record
	locks   map[string]*sync.Mutex
	// left is the number of calls until the agent is killed; negative for never. killed is set then.
	left   int
	killed bool
}

// step is called before and after each effect of an agent.
func (n *node) step() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left--; n.left == 0 {
		n.killed = true
	}
	if n.killed {
		return errKilled
	}
	return nil
}

// effect performs an effect of an agent, which can be killed before and after it.
func (n *node) effect(do func() error) error {
	if err := n.step(); err != nil {
		return err
	}
	return errors.Join(do(), n.step())
}

// killAfter lets the agent be killed at the given call from now on; 0: not at all.
func (n *node) killAfter(calls int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left, n.killed = calls, false
}

func (n *node) isKilled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.killed
}

// LimitMemory is Session.LimitMemory of dra-driver/nvml: the limit is set and read back.
func (n *node) LimitMemory(_ context.Context, gpuName, folder string, bytes uint64) error {
	err := n.effect(func() error { return n.set(gpuName, folder, bytes) })
	return errors.Join(err, n.readBack(gpuName, folder, bytes))
}

// MemoryLimit is Session.MemoryLimit of dra-driver/nvml.
func (n *node) MemoryLimit(_ context.Context, gpuName, folder string) (limit, used uint64, err error) {
	return n.get(gpuName, folder)
}

// Load is part of limiter.Records, as are Save and List.
func (n *node) Load(uid string) (prepare.Record, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r, known := n.records[uid]; known {
		return r, nil
	}
	return prepare.Record{}, prepare.ErrNoRecord
}

// Save stores a record.
func (n *node) Save(r prepare.Record) error {
	return n.effect(func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.records[r.UID] = r
		return nil
	})
}

// put stores a record, as kubelet's calls do: no agent is killed.
func (n *node) put(r prepare.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.records[r.UID] = r
}

// drop removes a record.
func (n *node) drop(uid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.records, uid)
}

// claims returns the UIDs of the claims, sorted.
func (n *node) claims() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.records))
}

// wanted returns a device of a claim.
func (n *node) wanted(d hook.LimitedDevice) prepare.Wanted {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.records[d.Claim].Wanted[d.Position]
}

// List returns all records.
func (n *node) List() ([]prepare.Record, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.records)), nil
}

// LockPrepared is that of prepare.Preparer.
func (n *node) LockPrepared(_ context.Context, claim prepare.Ref) (prepare.Record, func(), error) {
	n.mu.Lock()
	lock := n.locks[claim.UID]
	if lock == nil {
		lock = &sync.Mutex{}
		n.locks[claim.UID] = lock
	}
	n.mu.Unlock()
	lock.Lock()
	r, err := n.Load(claim.UID)
	if err != nil {
		lock.Unlock()
		return prepare.Record{}, nil, err
	}
	return r, lock.Unlock, nil
}

// Node has the GPUs.
func (n *node) Node() gpu.Node {
	var all gpu.Node
	for i := range gpus {
		all.GPUs = append(all.GPUs, gpu.GPU{PCI: fmt.Sprintf("0000:%02x:00.0", i), Index: i, Limiter: n.controller, MemoryBytes: 80 * gib})
	}
	return all
}

// agent is a running limiter.
type agent struct {
	*limiter.Server
	cancel context.CancelFunc
	ended  chan error
}

// start starts an agent and returns when its socket exists.
func (n *node) start(ctx context.Context) (*agent, error) {
	a := &agent{ended: make(chan error, 1), Server: limiter.New(limiter.Config{
		Sockets: filepath.Join(n.folder, "s"), Name: "a", Hierarchy: n.hierarchy, Containers: n.containers(),
		Records: n, Claims: n, Inventory: n, Driver: n,
		Failed: func(prepare.Ref, error) {}, Resized: func(prepare.Ref, string) {},
	})}
	ctx, cancel := context.WithCancel(ctx)
	a.cancel = cancel
	go func() { a.ended <- a.Run(ctx) }()
	for {
		if _, err := os.Stat(n.socket()); err == nil {
			return a, nil
		}
		select {
		case err := <-a.ended:
			cancel()
			return nil, fmt.Errorf("the agent ended: %w", err)
		default:
		}
	}
}

// stop ends the agent. Requests that it serves, and the check of all limits at its start, end before.
func (a *agent) stop() error {
	a.cancel()
	return <-a.ended
}

func (n *node) socket() string     { return filepath.Join(n.folder, "s", "a.sock") }
func (n *node) containers() string { return filepath.Join(n.folder, "c") }

// request sends the request of a container's hook. A hook that is killed does not wait for the answer, which the caller then does not use.
func (n *node) request(r hook.LimitRequest, killed bool) error {
	connection, err := net.Dial("unix", n.socket())
	if err != nil {
		return err
	}
	defer connection.Close() //nolint:errcheck // the answer was read
	if err := json.NewEncoder(connection).Encode(r); err != nil || killed {
		return errors.Join(err, errKilled)
	}
	var answer hook.LimitAnswer
	if err := json.NewDecoder(connection).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}
