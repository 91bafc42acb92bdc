package limiter

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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// node is a Server with two GPUs of a driver that limits memory with misc, and three claims.
type node struct {
	*Server
	t *testing.T

	mutex   sync.Mutex
	records map[string]prepare.Record
	err     error // of the driver
	limits  []string
	failed  []string
	resized []string
	// used is what the processes of each group have allocated; set is called before a limit is set.
	used map[string]uint64
	set  func(group string) error
}

func (n *node) Node() gpu.Node {
	return gpu.Node{GPUs: []gpu.GPU{{PCI: "0", Limiter: gpu.LimitedByMisc, ShareableBytes: 12 * gib}, {PCI: "1", Index: 1, Limiter: gpu.LimitedByMisc}}}
}

func (n *node) Load(uid string) (prepare.Record, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	switch r, known := n.records[uid]; {
	case known:
		return r, nil
	case uid == "damaged":
		return prepare.Record{}, &prepare.UnreadableRecord{Claim: prepare.Ref{UID: uid}}
	}
	return prepare.Record{}, prepare.ErrNoRecord
}

func (n *node) Save(r prepare.Record) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.records[r.UID] = r
	return nil
}

func (n *node) List() ([]prepare.Record, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return slices.Collect(maps.Values(n.records)), nil
}

func (n *node) LockPrepared(_ context.Context, claim prepare.Ref) (prepare.Record, func(), error) {
	r, err := n.Load(claim.UID)
	return r, func() {}, err
}

func (n *node) LimitMemory(_ context.Context, gpuName, folder string, bytes uint64) error {
	if n.set != nil {
		if err := n.set(filepath.Base(folder)); err != nil {
			return err
		}
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.err != nil {
		return n.err
	}
	n.limits = append(n.limits, fmt.Sprintf("%s %s %d", filepath.Base(folder), gpuName, bytes/gib))
	return nil
}

// MemoryLimit returns 3 of 4 GiB, unless used has another number; a whole GPU has no limit.
func (n *node) MemoryLimit(_ context.Context, gpuName, folder string) (limit, used uint64, err error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if gpuName == "gpu-1" {
		return gpu.NoMemoryLimit, 0, n.err
	}
	if used, known := n.used[filepath.Base(folder)]; known {
		return 4 * gib, used, n.err
	}
	return 4 * gib, 3 * gib, n.err
}

// newNode has a server that does not run.
func newNode(t *testing.T) *node {
	t.Helper()
	top, err := os.MkdirTemp("", "l") // short: paths of sockets have at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	n := &node{t: t, records: map[string]prepare.Record{
		"a": record("a", prepare.StatePrepared, share("gpu-0", gib), share("gpu-1", 2*gib)),
		"b": record("b", prepare.StatePrepared, share("gpu-0", 4*gib)),
		"w": record("w", prepare.StatePrepared, whole("gpu-1")),
	}}
	n.Server = New(Config{
		Sockets: filepath.Join(top, "s"), Name: "agent", Hierarchy: filepath.Join(top, "cgroup"), Containers: filepath.Join(top, "c"), Records: n, Claims: n, Inventory: n, Driver: n,
		Resized: func(claim prepare.Ref, text string) { n.resized = append(n.resized, claim.Name+": "+text) },
		Failed: func(claim prepare.Ref, cause error) {
			n.mutex.Lock()
			defer n.mutex.Unlock()
			n.failed = append(n.failed, fmt.Sprintf("%s: %v", claim.Name, cause))
		},
	})
	n.group("limited", "memory misc")
	n.group("other", "memory")
	return n
}

// running runs the server of a new node until the test ends.
func running(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.start(n.Server)
	return n
}

func (n *node) group(name, controllers string) {
	n.t.Helper()
	folder := filepath.Join(n.Hierarchy, name)
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "cgroup.controllers"), []byte(controllers+"\n"), 0o600)); err != nil {
		n.t.Fatal(err)
	}
}

// start runs a server and returns when its socket exists.
func (n *node) start(s *Server) (stop func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for {
		if _, err := os.Stat(filepath.Join(s.Sockets, s.Name+extension)); err == nil {
			break
		}
		select {
		case err := <-ended:
			n.t.Fatalf("the server ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				n.t.Error(err)
			}
		})
	}
	n.t.Cleanup(stop)
	return stop
}

// request sends a request as the hook does.
func (n *node) request(group string, devices ...hook.LimitedDevice) hook.LimitAnswer {
	n.t.Helper()
	return n.send(hook.LimitRequest{Group: group, Devices: devices})
}

func (n *node) send(request hook.LimitRequest) hook.LimitAnswer {
	n.t.Helper()
	connection, err := net.Dial("unix", filepath.Join(n.Sockets, "agent.sock"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer connection.Close()
	var answer hook.LimitAnswer
	if err := errors.Join(json.NewEncoder(connection).Encode(request), json.NewDecoder(connection).Decode(&answer)); err != nil {
		n.t.Fatal(err)
	}
	return answer
}

func TestServer(t *testing.T) {
	n := running(t)
	if answer := n.request("/limited", device("a", 0), device("a", 1), device("b", 0)); answer != (hook.LimitAnswer{}) {
		t.Errorf("answer %+v", answer)
	}
	if diff := cmp.Diff([]string{"limited gpu-0 5", "limited gpu-1 2"}, n.limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if len(n.failed) > 0 {
		t.Errorf("reported: %q", n.failed)
	}
}

// A container whose limits are not in effect is refused, with the reason on each of its claims. Only a missing driver is worth another attempt.
func TestServerRefuses(t *testing.T) {
	n := running(t)
	for name, test := range map[string]struct {
		err       error
		group     string
		devices   []hook.LimitedDevice
		want      string
		reported  []string
		repeating bool
	}{
		"no controller":   {nil, "/other", []hook.LimitedDevice{device("a", 0), device("b", 0)}, "lacks the controller misc", []string{"a", "b"}, false},
		"no group":        {nil, "/missing", []hook.LimitedDevice{device("a", 0)}, "no such file", []string{"a"}, false},
		"not in effect":   {errors.New("not in effect"), "/limited", []hook.LimitedDevice{device("a", 0)}, "not in effect", []string{"a"}, false},
		"no driver":       {gpu.ErrNoDriver, "/limited", []hook.LimitedDevice{device("a", 0)}, gpu.ErrNoDriver.Error(), nil, true},
		"unknown claim":   {nil, "/limited", []hook.LimitedDevice{device("c", 0)}, "not prepared", nil, false},
		"one of two":      {nil, "/limited", []hook.LimitedDevice{device("a", 0), device("c", 0)}, "not prepared", []string{"a"}, false},
		"damaged record":  {nil, "/limited", []hook.LimitedDevice{device("damaged", 0)}, "unreadable", nil, false},
		"invalid request": {nil, "/", []hook.LimitedDevice{device("a", 0)}, "root", nil, false},
	} {
		n.mutex.Lock()
		n.err, n.limits, n.failed = test.err, nil, nil
		n.mutex.Unlock()
		answer := n.request(test.group, test.devices...)
		if !strings.Contains(answer.Error, test.want) || answer.Retry != test.repeating || len(n.limits) > 0 {
			t.Errorf("%s: answer %+v, want %q; limits %q", name, answer, test.want, n.limits)
		}
		var claims []string
		for _, text := range n.failed {
			claim, _, _ := strings.Cut(text, ":")
			claims = append(claims, claim)
		}
		slices.Sort(claims)
		if diff := cmp.Diff(test.reported, claims); diff != "" {
			t.Errorf("%s: claims with a report (-want +got):\n%s", name, diff)
		}
	}
}

// What is not promised to be limited starts in a group without the controller too: crun alone enables neither misc nor dmem.
func TestServerWithoutPromise(t *testing.T) {
	n := running(t)
	if err := n.Save(record("m", prepare.StatePrepared, mps("gpu-0", gib))); err != nil {
		t.Fatal(err)
	}
	if answer := n.request("/other", device("w", 0), device("m", 0)); answer != (hook.LimitAnswer{}) || len(n.limits) > 0 || len(n.failed) > 0 {
		t.Errorf("without the controller: answer %+v, limits %q, reported %q", answer, n.limits, n.failed)
	}
	if answer := n.request("/limited", device("w", 0), device("m", 0)); answer != (hook.LimitAnswer{}) || len(n.limits) != 2 {
		t.Errorf("with the controller: answer %+v, limits %q", answer, n.limits)
	}
}

// The hook of NVIDIA's toolkit would replace a limit after it was read back.
func TestServerRefusesOtherLimits(t *testing.T) {
	n := running(t)
	answer := n.send(hook.LimitRequest{Group: "/limited", Devices: []hook.LimitedDevice{device("a", 0)}, ToolkitLimits: true})
	if !strings.Contains(answer.Error, hook.ToolkitLimits) || len(n.limits) > 0 || len(n.failed) != 1 {
		t.Errorf("a share: answer %+v, limits %q, reported %q", answer, n.limits, n.failed)
	}
	if answer := n.send(hook.LimitRequest{Group: "/limited", Devices: []hook.LimitedDevice{device("w", 0)}, ToolkitLimits: true}); answer != (hook.LimitAnswer{}) {
		t.Errorf("a whole GPU: answer %+v", answer)
	}
}

// Two agents serve during an update. A socket that an agent left behind is removed by the next one, that of a running agent is not.
func TestSockets(t *testing.T) {
	n := running(t)
	left := filepath.Join(n.Sockets, "killed"+extension)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	second := n.Config
	second.Name = "second"
	stop := n.start(New(second))
	names := func() (names []string) {
		entries, err := os.ReadDir(n.Sockets)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if diff := cmp.Diff([]string{"agent.sock", "second.sock"}, names()); diff != "" {
		t.Errorf("sockets (-want +got):\n%s", diff)
	}
	if answer := n.request("/limited", device("a", 0)); answer.Error != "" {
		t.Error(answer.Error)
	}
	stop()
	if diff := cmp.Diff([]string{"agent.sock"}, names()); diff != "" {
		t.Errorf("sockets afterward (-want +got):\n%s", diff)
	}
}
