package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

const driver = harness.Driver

// soon is the time limit of operations that usually take milliseconds. A wait for a timeout would take at least half a
// minute.
const soon = 20 * time.Second

// tries is the number of attempts to meet that limit: a busy machine may be interrupted during one of them.
const tries = 3

// poll repeats try until it succeeds or ctx ends.
func poll(ctx context.Context, try func(context.Context) error) error {
	return harness.Poll(ctx, try)
}

// node is a host of the harness in a test.
type node struct {
	t    *testing.T
	host *harness.Host
	name string
	dir  string
	// kubeconfig is the path of the agents' kubeconfig.
	kubeconfig string
	// args are additional arguments of the agents.
	args []string
	// hardware is the machine in the catalog.
	hardware gpu.Node
}

// nodes counts the nodes of the test binary.
var nodes atomic.Int32

// newNode creates the files of a machine of the catalog and its Node.
func newNode(t *testing.T, machine string) *node {
	t.Helper()
	n := emptyNode(t, machine)
	n.must(n.host.Install(t.Context(), machine))
	return n
}

// emptyNode is newNode without the machine's files.
func emptyNode(t *testing.T, machine string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // short: paths of sockets have at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, name: fmt.Sprintf("node-%d", nodes.Add(1)), dir: dir, kubeconfig: shared.kubeconfig}
	t.Cleanup(func() {
		if log, err := os.ReadFile(filepath.Join(dir, "agent.log")); t.Failed() && err == nil {
			t.Logf("log of the agent on %s:\n%s", n.name, tail(string(log), 25))
		}
		_ = os.RemoveAll(dir)
	})
	n.host, err = harness.NewHost(t.Context(), shared.plane, dir, n.name, machine)
	n.must(err)
	n.hardware = n.host.Hardware
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) machine() string { return n.host.Machine() }
func (n *node) data() string    { return n.host.Data() }
func (n *node) cdi() string     { return n.host.CDI() }
func (n *node) config() string  { return n.host.Config() }

// configure writes the NodeConfig: the roots and additional lines.
func (n *node) configure(more string) {
	n.t.Helper()
	n.must(n.host.Configure(more))
}

// truth reads the state of the hardware, without the agent and without NVML.
func (n *node) truth() fakegpu.State {
	n.t.Helper()
	state, err := fakegpu.Read(n.machine())
	n.must(err)
	return state
}

// files returns the paths that match the patterns below the folder.
func (n *node) files(folder string, patterns ...string) []string {
	n.t.Helper()
	var found []string
	for _, pattern := range patterns {
		matches, err := filepath.Glob(filepath.Join(folder, pattern))
		n.must(err)
		found = append(found, matches...)
	}
	return found
}

// recordOf returns the path of the claim's record.
func (n *node) recordOf(uid string) string { return filepath.Join(n.data(), "claims", uid+".json") }

// record returns the text of the claim's record.
func (n *node) record(uid string) string {
	n.t.Helper()
	text, err := os.ReadFile(n.recordOf(uid))
	n.must(err)
	return string(text)
}

// leftovers returns the paths of everything on the node that belongs to a claim.
func (n *node) leftovers() []string {
	n.t.Helper()
	return slices.Concat(placements(n.truth()), modes(n.truth()), n.files(n.dir, "p/*/claims/*", "cdi/tessera-claim-*", "mps/*"))
}

// isClean checks that no claim has left anything.
func (n *node) isClean() {
	n.t.Helper()
	if left := n.leftovers(); len(left) > 0 {
		n.t.Errorf("left on the node: %q", left)
	}
}

// agent is one running agent of a node.
type agent struct {
	*harness.Agent
	node *node
	uid  string
	cmd  *exec.Cmd
	// ended is closed when the process has exited.
	ended <-chan struct{}
}

// start starts the agent of the pod and returns immediately. The environment has name=value.
func (n *node) start(program, uid string, environment ...string) *agent {
	n.t.Helper()
	n.host.Kubeconfig = n.kubeconfig
	started, err := n.host.Start(harness.Launch{
		Program: program, Hook: shared.hook, UID: uid, Verbosity: 4, Args: n.args,
		Environment: append([]string{"GORACE=halt_on_error=1 atexit_sleep_ms=0"}, environment...),
	})
	n.must(err)
	a := &agent{Agent: started, node: n, uid: uid, cmd: started.Cmd, ended: started.Ended}
	n.t.Cleanup(a.kill)
	return a
}

// kill kills the agent and waits until it has exited.
func (a *agent) kill() { a.Kill() }

// run starts the product and waits until kubelet is connected to it.
func (n *node) run(environment ...string) (*agent, *kubelet) {
	n.t.Helper()
	a := n.start(shared.agent, "pod", environment...)
	return a, a.connect()
}

// terminate ends the agent with SIGTERM, as kubelet does.
func (a *agent) terminate() {
	a.node.t.Helper()
	if err := a.Terminate(); err != nil {
		a.node.t.Error(err)
	}
}

func (a *agent) socket() string { return a.Socket() }

// get sends a request to the agent's HTTP endpoint.
func (a *agent) get(ctx context.Context, path string) (*http.Response, error) {
	return a.Request(ctx, path)
}

// waitReady waits until the agent is ready.
func (a *agent) waitReady() {
	a.node.t.Helper()
	a.node.eventually("the agent is ready", a.Ready)
}

// metric waits until the agent's metrics contain the line.
func (a *agent) metric(line string) {
	a.node.t.Helper()
	a.node.eventually("metric", func(ctx context.Context) error {
		response, err := a.get(ctx, "/metrics")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if !slices.Contains(strings.Split(string(text), "\n"), line) {
			err = errors.Join(err, fmt.Errorf("no line %q", line))
		}
		return err
	})
}

// memory returns the resident memory of the agent in KiB.
func (a *agent) memory() int {
	a.node.t.Helper()
	size, err := a.Memory()
	a.node.must(err)
	return size
}

// eventually waits until check succeeds.
func (n *node) eventually(what string, check func(context.Context) error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), harness.Patience)
	defer cancel()
	if err := poll(ctx, check); err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

// promptly checks that do, including its effect, takes less than soon. undo reverts it for another attempt.
func (n *node) promptly(what string, do, undo func()) {
	n.t.Helper()
	for try := 1; ; try++ {
		begin := time.Now()
		do()
		took := time.Since(begin)
		if took <= soon {
			return
		}
		if try == tries {
			n.t.Errorf("%s took %v, and never less than %v", what, took, soon)
			return
		}
		undo()
	}
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// eventuallyFile waits until a file matches the pattern.
func (n *node) eventuallyFile(what, pattern string) {
	n.t.Helper()
	n.eventually(what, func(context.Context) error {
		if found, err := filepath.Glob(pattern); err != nil || len(found) == 0 {
			return fmt.Errorf("no file %s", pattern)
		}
		return nil
	})
}
