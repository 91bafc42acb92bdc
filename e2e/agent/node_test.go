package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/fakegpu"
)

const driver = v1alpha1.DriverName

// node is a host made of files, with a Node of the same name on the API server.
type node struct {
	t    *testing.T
	name string
	dir  string
	// kubeconfig is how the agent finds the API server.
	kubeconfig string
	// hardware is the machine as the catalogue has it.
	hardware gpu.Node
}

// nodes numbers the nodes of the test binary.
var nodes atomic.Int32

// newNode lays down a machine of the catalogue and makes its Node.
func newNode(t *testing.T, machine string) *node {
	t.Helper()
	n := emptyNode(t, machine)
	n.must(fakegpu.Install(t.Context(), n.machine(), fakegpu.Spec{Node: n.name, Machine: machine}))
	return n
}

// emptyNode is newNode without the machine's files.
func emptyNode(t *testing.T, machine string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // short: the names of sockets have at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, name: fmt.Sprintf("node-%d", nodes.Add(1)), dir: dir, kubeconfig: shared.kubeconfig, hardware: gputest.Node(t, machine)}
	n.hardware.Name = n.name
	t.Cleanup(func() {
		if log, err := os.ReadFile(n.log()); t.Failed() && err == nil {
			t.Logf("log of the agent on %s:\n%s", n.name, tail(string(log), 25))
		}
		_ = os.RemoveAll(dir)
	})
	for _, folder := range []string{n.plugins(), n.data(), n.registry(), n.cdi()} {
		n.must(os.MkdirAll(folder, 0o755))
	}
	n.configure("")
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	_, err = shared.client.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
	n.must(err)
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) machine() string  { return filepath.Join(n.dir, "m") }
func (n *node) plugins() string  { return filepath.Join(n.dir, "p") }
func (n *node) data() string     { return filepath.Join(n.plugins(), driver) }
func (n *node) registry() string { return filepath.Join(n.dir, "r") }
func (n *node) cdi() string      { return filepath.Join(n.dir, "cdi") }
func (n *node) log() string      { return filepath.Join(n.dir, "agent.log") }
func (n *node) config() string   { return filepath.Join(n.dir, "node.yaml") }

// configure writes the NodeConfig: the roots, and more lines.
func (n *node) configure(more string) {
	n.t.Helper()
	m := n.machine()
	text := fmt.Sprintf("apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\nroots: {host: /, proc: %s, sys: %s, driver: %s, dev: %s}\n%s",
		fakegpu.ProcRoot(m), fakegpu.SysRoot(m), fakegpu.DriverRoot(m), fakegpu.DevRoot(m), more)
	n.must(os.WriteFile(n.config(), []byte(text), 0o600))
}

// truth reads what the hardware holds, without the agent and without NVML.
func (n *node) truth() fakegpu.State {
	n.t.Helper()
	state, err := fakegpu.Read(n.machine())
	n.must(err)
	return state
}

// files returns what matches the patterns below the folder.
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

// leftovers names everything on the node that belongs to a claim.
func (n *node) leftovers() []string {
	n.t.Helper()
	return append(placements(n.truth()), n.files(n.dir, "p/*/claims/*", "cdi/tessera-claim-*")...)
}

// isClean checks that nothing of any claim is left.
func (n *node) isClean() {
	n.t.Helper()
	if left := n.leftovers(); len(left) > 0 {
		n.t.Errorf("left on the node: %q", left)
	}
}

// agent is one running agent of a node.
type agent struct {
	*process
	node *node
	uid  string
}

// start starts the agent of the pod and returns at once. The environment has name=value.
func (n *node) start(program, uid string, environment ...string) *agent {
	n.t.Helper()
	a := &agent{node: n, uid: uid}
	cmd := exec.Command(program, "--config="+n.config(), "--kubeconfig="+n.kubeconfig, "--node-name="+n.name, "--pod-uid="+uid,
		"--plugin-dir="+n.plugins(), "--registry-dir="+n.registry(), "--cdi-dir="+n.cdi(), "--hook="+shared.hook,
		"--metrics-address=unix:"+a.socket(), "-v=4")
	cmd.Env = append(append(os.Environ(), "GORACE=halt_on_error=1"), environment...)
	var err error
	a.process, err = start(n.log(), cmd)
	n.must(err)
	n.t.Cleanup(a.kill)
	return a
}

// run starts the product and waits until kubelet is connected to it.
func (n *node) run(environment ...string) (*agent, *kubelet) {
	n.t.Helper()
	a := n.start(shared.agent, "pod", environment...)
	return a, a.connect()
}

// terminate ends the agent as kubelet ends a pod.
func (a *agent) terminate() {
	a.node.t.Helper()
	a.node.must(a.cmd.Process.Signal(syscall.SIGTERM))
	<-a.ended
	if state := a.cmd.ProcessState; !state.Success() {
		a.node.t.Errorf("agent ended with %v", state)
	}
}

func (a *agent) socket() string { return filepath.Join(a.node.dir, a.uid+".http") }

// get asks the agent's HTTP endpoint.
func (a *agent) get(ctx context.Context, path string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", a.socket())
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
}

// waitReady waits until the agent says that it is ready.
func (a *agent) waitReady() {
	a.node.t.Helper()
	a.node.eventually("the agent is ready", func(ctx context.Context) error {
		response, err := a.get(ctx, "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

// metric waits until the agent's metrics have the line.
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
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	a.node.must(err)
	for line := range strings.Lines(string(text)) {
		var size int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &size); err == nil {
			return size
		}
	}
	a.node.t.Fatal("no VmRSS")
	return 0
}

// eventually waits until check succeeds.
func (n *node) eventually(what string, check func(context.Context) error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 20*time.Second)
	defer cancel()
	if err := poll(ctx, check); err != nil {
		n.t.Fatalf("%s: %v", what, err)
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
