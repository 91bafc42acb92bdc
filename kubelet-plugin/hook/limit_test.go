package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// limited is a container with limited devices, and the folder of the agents' sockets.
type limited struct {
	t     *testing.T
	top   string
	state containerState
}

// newLimited makes a container in a control group, with the hooks of the devices and others.
func newLimited(t *testing.T, group string, devices ...string) limited {
	t.Helper()
	top, err := os.MkdirTemp("", "h") // short: paths of sockets have at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	l := limited{t, top, containerState{PID: 7, Bundle: filepath.Join(top, "bundle")}}
	hooks := []string{`{"path": "/other", "args": ["other", "limit-memory", "--device", "x/0"]}`, `{"path": "/bare"}`}
	for _, d := range devices {
		args, err := json.Marshal([]string{Program, LimitMemory, "--sockets", l.sockets(), "--device", d})
		if err != nil {
			t.Fatal(err)
		}
		hooks = append(hooks, fmt.Sprintf(`{"path": "/hook", "args": %s}`, args))
	}
	for path, text := range map[string]string{
		"bundle/config.json": fmt.Sprintf(`{"root": {"path": "rootfs"}, "process": {"env": ["DEVICE=a/9"]}, "annotations": {"io.kubernetes.cri.sandbox-namespace": "team",
			"io.kubernetes.cri.sandbox-name": "train-0", "io.kubernetes.cri.container-name": "main"}, "hooks": {"createRuntime": [%s]}}`, strings.Join(hooks, ",")),
		"proc/7/cgroup": group,
	} {
		file := filepath.Join(top, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l limited) sockets() string { return filepath.Join(l.top, "s") }

// run runs the hook of a device.
func (l limited) run(device string) error {
	return limitMemory(options{sockets: l.sockets(), device: device}, l.state, filepath.Join(l.top, "proc"))
}

// agent serves requests with the answers, the last one repeatedly, and records them.
func (l limited) agent(name string, answers ...LimitAnswer) (requests func() []LimitRequest) {
	l.t.Helper()
	if err := os.MkdirAll(l.sockets(), 0o755); err != nil {
		l.t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(l.sockets(), name+".sock"))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { listener.Close() })
	var mutex sync.Mutex
	var seen []LimitRequest
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			var request LimitRequest
			_ = json.NewDecoder(connection).Decode(&request)
			mutex.Lock()
			seen = append(seen, request)
			answer := answers[min(len(seen), len(answers))-1]
			mutex.Unlock()
			_ = json.NewEncoder(connection).Encode(answer)
			connection.Close()
		}
	}()
	return func() []LimitRequest {
		mutex.Lock()
		defer mutex.Unlock()
		return seen
	}
}

const unified = "4:memory:/a\n0::/kubepods.slice/pod.scope\n"

// The hook of the first device has all devices of the container limited in one request, those of the other devices do nothing.
func TestLimitMemory(t *testing.T) {
	l := newLimited(t, unified, "a/1", "b/0", "a/1", "a/2")
	requests := l.agent("agent", LimitAnswer{})
	for _, device := range []string{"a/1", "b/0", "a/2"} {
		if err := l.run(device); err != nil {
			t.Errorf("%s: %v", device, err)
		}
	}
	want := []LimitRequest{{
		Group: "/kubepods.slice/pod.scope", Devices: []LimitedDevice{{"a", 1}, {"b", 0}, {"a", 2}},
		Namespace: "team", Pod: "train-0", Container: "main", // as containerd writes them
	}}
	if diff := cmp.Diff(want, requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// What NVIDIA's toolkit would set is known to the agent: the hook is as its library nvcdi 1.20.2 writes it (lib-csv_test.go), and the variables are those that
// the hook reads. Without a variable it sets nothing.
func TestToolkitLimits(t *testing.T) {
	for config, want := range map[string]bool{
		`{"process": {"env": ["A=1", "NVIDIA_GPU_MEMORY_LIMIT=1000"]}, "hooks": {"createRuntime": [{"args": ["nvidia-cdi-hook", "apply-cuda-memory-limits", "--driver-root", "", "--gpu-id", "GPU-1"]}]}}`: true,
		`{"process": {"env": ["NVIDIA_GPU_MEMORY_REQUEST=10"]}, "hooks": {"createRuntime": [{"args": ["nvidia-ctk", "hook", "apply-cuda-memory-limits", "--gpu-id", "GPU-1"]}]}}`:                          true,
		`{"process": {"env": ["NVIDIA_GPU_MEMORY=10"]}, "hooks": {"createRuntime": [{"args": ["nvidia-cdi-hook", "apply-cuda-memory-limits", "--gpu-id", "GPU-1"]}]}}`:                                     false,
		`{"process": {"env": ["NVIDIA_GPU_MEMORY_LIMIT=1000"]}, "hooks": {"createRuntime": [{"args": ["nvidia-cdi-hook", "update-ldcache"]}]}}`:                                                            false,
		`{"process": {"env": ["NVIDIA_GPU_MEMORY_LIMIT=1000"]}}`: false,
	} {
		var c containerConfig
		if err := json.Unmarshal([]byte(config), &c); err != nil {
			t.Fatal(err)
		}
		if got := c.toolkitLimits(); got != want {
			t.Errorf("%s: %t, want %t", config, got, want)
		}
	}
}

// Of two agents one may be ending, and an agent may have no driver for a moment. A refusal ends the wait.
func TestLimitMemoryRetries(t *testing.T) {
	l := newLimited(t, unified, "a/0")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(l.top, "dead"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	later := l.agent("later", LimitAnswer{Error: "no driver", Retry: true}, LimitAnswer{})
	if err := os.Rename(filepath.Join(l.top, "dead"), filepath.Join(l.sockets(), "dead.sock")); err != nil {
		t.Fatal(err)
	}
	if err := l.run("a/0"); err != nil || len(later()) != 2 {
		t.Errorf("error %v, requests %v", err, later())
	}
	refusing := newLimited(t, unified, "a/0")
	once := refusing.agent("agent", LimitAnswer{Error: "no controller"})
	if err := refusing.run("a/0"); err == nil || !strings.Contains(err.Error(), "no controller") || len(once()) != 1 {
		t.Errorf("error %v, requests %v", err, once())
	}
}

// An agent that starts while the hook waits limits the container; without one the container fails, and the message names what to look at.
func TestLimitMemoryWaitsForAnAgent(t *testing.T) {
	l := newLimited(t, unified, "a/0")
	request := LimitRequest{Group: "/a", Devices: []LimitedDevice{{"a", 0}}}
	err := requestLimits(l.sockets(), request, time.Now().Add(3*limitRetry))
	if err == nil || !strings.Contains(err.Error(), "check the pod of tessera-node") {
		t.Errorf("without an agent: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.run("a/0") }()
	l.agent("agent", LimitAnswer{})
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// One that accepts and does not answer does not hold the hook beyond the deadline.
	silent := newLimited(t, unified, "a/0")
	if err := os.MkdirAll(silent.sockets(), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(silent.sockets(), "a.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := requestLimits(silent.sockets(), request, time.Now().Add(3*limitRetry)); err == nil {
		t.Error("an agent that does not answer counts as one that has limited")
	}
}

func TestLimitMemoryRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		group   string
		devices []string
		want    string
	}{
		"version 1":        {"4:memory:/a\n", []string{"a/0"}, "no control group of version 2"},
		"a damaged device": {unified, []string{"a/0", "b"}, `device "b"`},
		"no hook":          {unified, nil, "does not have this hook"},
		"negative":         {unified, []string{"a/0", "b/-1"}, `device "b/-1"`},
	} {
		l := newLimited(t, test.group, test.devices...)
		l.agent("agent", LimitAnswer{})
		if err := l.run("a/0"); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// CRI-O names pod and container in its own annotations.
func TestNamesOfContainers(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"containerd": {"io.kubernetes.cri.sandbox-namespace": "team", "io.kubernetes.cri.sandbox-name": "train-0", "io.kubernetes.cri.container-name": "main"},
		"CRI-O":      {"io.kubernetes.pod.namespace": "team", "io.kubernetes.pod.name": "train-0", "io.kubernetes.container.name": "main"},
	} {
		namespace, pod, container := containerConfig{Annotations: annotations}.names()
		if got := [3]string{namespace, pod, container}; got != [3]string{"team", "train-0", "main"} {
			t.Errorf("%s: %q", name, got)
		}
	}
}
