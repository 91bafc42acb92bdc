package mps

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// namedStage is a supervisor of a daemon of driver 615, with CUDA clients. The daemon is the fake driver's, which follows the documentation of MPS version 3
// and what NVIDIA measured with it (Dynamo, "Per-GPU Compute and Memory Limits with MPS", driver 615.71.09).
type namedStage struct {
	*stage
	machine, client string
}

func newNamedStage(t *testing.T) namedStage {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	folder, err := os.MkdirTemp("", "mps") // the path of a socket is limited in length
	must(err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	s := namedStage{stage: &stage{t: t, folder: folder, dir: t.TempDir()}, machine: t.TempDir(), client: filepath.Join(folder, "client")}
	must(fakegpu.InstallDriver(t.Context(), s.machine, fakegpu.Spec{Machine: "h100x2", DriverVersion: "615.71.09"}))
	must(os.Symlink(fakegpu.MPSControl(s.machine), filepath.Join(s.dir, "nvidia-cuda-mps-control")))
	output, err := exec.CommandContext(t.Context(), "gcc", "-o", s.client, "../../e2e/fake/fakegpu/testdata/cuda_client.c", "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	s.start()
	return s
}

// run runs a client with the pipe folder and returns its last line.
func (s namedStage) run(pipe string, env []string, verbs ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.client, append([]string{"libcuda.so.1"}, verbs...)...)
	cmd.Env = append([]string{"LD_LIBRARY_PATH=" + filepath.Join(s.folder, libName), "CUDA_MPS_PIPE_DIRECTORY=" + pipe}, env...)
	output, _ := cmd.CombinedOutput() //nolint:errcheck // a failed call is in the output
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return lines[len(lines)-1]
}

func (s namedStage) claim(name string) string {
	return filepath.Join(s.folder, pipeName, claimsName, name)
}

// command runs the program as an administrator does.
func (s namedStage) command(words ...string) (string, error) {
	d := control{program: fakegpu.MPSControl(s.machine), timeouts: longTimeouts(), env: []string{
		"LD_LIBRARY_PATH=" + filepath.Join(s.folder, libName), "CUDA_MPS_PIPE_DIRECTORY=" + filepath.Join(s.folder, pipeName),
	}}
	return d.call(s.t.Context(), "", words...)
}

// names returns the namespaces of the daemon.
func (s namedStage) names() []string {
	s.t.Helper()
	text, err := s.command("namespace", "list", "--format=csv,noheader")
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// claims has two claims of a GPU.
func claims() configuration {
	return configuration{
		Name: "mps-gpu", GPU: "gpu", Visible: catalog.UUID("node1", 0), ActiveThreadPercentage: 50, PinnedMemoryBytes: 20 << 30,
		Namespaces: []prepare.Namespace{
			{Name: "c_large", ActiveThreadPercentage: 50, PinnedMemoryBytes: 20 << 30},
			{Name: "c_small", ActiveThreadPercentage: 25, PinnedMemoryBytes: 4608 << 20},
		},
	}
}

// Each claim has its own limits, whatever its containers set, while claims come and go; the clients of the others stay connected.
func TestClaimsHaveNamespaces(t *testing.T) {
	s := newNamedStage(t)
	c := claims()
	s.configure(c)
	if seen := s.await(c); seen.Protocol != version3 {
		t.Errorf("state: %+v", seen)
	}
	own := []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=70G"}
	for what, test := range map[string]struct {
		pipe string
		env  []string
		verb string
		want string
	}{
		"large": {s.claim("c_large"), nil, "share", "66 multiprocessors, 20480 MiB free"},
		"small": {s.claim("c_small"), nil, "share", "32 multiprocessors, 4608 MiB free"},
		"small, with larger limits in its environment": {s.claim("c_small"), own, "share", "32 multiprocessors, 4608 MiB free"},
		"small, with lower ones there":                 {s.claim("c_small"), []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G"}, "share", "32 multiprocessors, 1024 MiB free"},
		"an unseen GPU removes the limit":              {s.claim("c_small"), []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=1=1G"}, "share", "32 multiprocessors, 81079 MiB free"},
		"a stray":                                      {filepath.Join(s.folder, pipeName), nil, "share", "2 multiprocessors, 1 MiB free"},
	} {
		if got := s.run(test.pipe, test.env, test.verb); got != test.want {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
	if info, err := os.Stat(filepath.Join(s.folder, pipeName)); err != nil || info.Mode().Perm() != closedMode {
		t.Errorf("the folder of all sockets: %v, %v", info.Mode(), err)
	}
	next := claims()
	next.Namespaces = append(next.Namespaces[:1:1], prepare.Namespace{Name: "c_third"})
	s.configure(next)
	s.await(next)
	if diff := cmp.Diff([]string{"c_large", "c_third", "default"}, s.names()); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(s.claim("c_small")); err == nil {
		t.Error("the released claim has a folder")
	}
	if got := s.run(s.claim("c_third"), nil, "share"); got != "132 multiprocessors, 81079 MiB free" {
		t.Errorf("a claim without limits: %q", got)
	}
	if err := s.signal(syscall.SIGTERM); err != nil || s.held(aliveByte) {
		t.Errorf("the supervisor: %v\n%s", err, s.log)
	}
}

// Containers keep the folder of their claim mounted while the daemon is replaced: the same folder has the new socket.
func TestNamespacesOutliveTheDaemon(t *testing.T) {
	s := newNamedStage(t)
	c := claims()
	s.configure(c)
	s.await(c)
	mounted, err := os.Open(s.claim("c_small")) // like a bind mount, it is the folder and not its path
	if err != nil {
		t.Fatal(err)
	}
	defer mounted.Close()
	pid := strings.TrimSpace(readText(t, filepath.Join(s.folder, pipeName, "nvidia-cuda-mps-control.pid")))
	if output, err := exec.CommandContext(t.Context(), "kill", "-KILL", pid).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	eventually(t, "the daemon serves again", func() bool {
		seen, serves := s.observe()
		return serves && seen.Restarts == 1
	})
	if entries, err := mounted.Readdirnames(-1); err != nil || !slices.Equal(entries, []string{socketName}) {
		t.Errorf("the mounted folder has %v, %v", entries, err)
	}
	if got := s.run(s.claim("c_small"), nil, "share"); got != "32 multiprocessors, 4608 MiB free" {
		t.Errorf("a client: %q", got)
	}
}

// A daemon keeps its version of MPS: containers have the folder of its sockets mounted. That of an agent before version 3 has no namespaces.
func TestDaemonsKeepTheirProtocol(t *testing.T) {
	s := newNamedStage(t)
	c := claims()
	before := c
	before.Namespaces = nil
	s.configure(before)
	if seen := s.await(before); seen.Protocol != version2 {
		t.Errorf("without namespaces: %+v", seen)
	}
	s.configure(c)
	eventually(t, "the limits of version 2", func() bool {
		seen, serves := s.observe()
		return serves && seen.Protocol == version2 && seen.Config.equals(c, version2) && len(seen.Config.Namespaces) == 2
	})
	if got := s.run(filepath.Join(s.folder, pipeName), nil, "share"); got != "66 multiprocessors, 20480 MiB free" {
		t.Errorf("a client of version 2: %q", got)
	}
}

// An agent before version 3 that replaces a newer one writes no namespaces: those of running containers stay.
func TestNamespacesOutliveADowngrade(t *testing.T) {
	s := newNamedStage(t)
	c := claims()
	s.configure(c)
	s.await(c)
	before := c
	before.Namespaces = nil
	s.configure(before)
	s.await(before)
	for pipe, want := range map[string]string{
		s.claim("c_small"):                "32 multiprocessors, 4608 MiB free",
		filepath.Join(s.folder, pipeName): "66 multiprocessors, 20480 MiB free",
	} {
		if got := s.run(pipe, nil, "share"); got != want {
			t.Errorf("a client with %s: %q, want %q", pipe, got, want)
		}
	}
}

// A server that cannot use a device is accepted, ends, and is not listed: its clients would run without MPS and without limits.
func TestVanishedServerIsFound(t *testing.T) {
	s := newNamedStage(t)
	c := claims()
	c.Visible = "GPU-00000000-0000-0000-0000-000000000000"
	s.configure(c)
	eventually(t, "the failure is reported", func() bool {
		seen, serves := s.observe()
		return !serves && strings.Contains(seen.LastError, errNoServer.Error())
	})
	if _, err := os.Stat(filepath.Join(s.claim("c_small"), socketName)); err == nil {
		t.Error("a client can connect")
	}
}

// A released claim whose containers still run keeps its clients and gets no new ones; its namespace goes with the next change.
func TestNamespaceWithClientsStays(t *testing.T) {
	s := newNamedStage(t)
	c := claims()
	s.configure(c)
	s.await(c)
	client := exec.CommandContext(t.Context(), s.client, "libcuda.so.1", "hold")
	client.Env = []string{"LD_LIBRARY_PATH=" + filepath.Join(s.folder, libName), "CUDA_MPS_PIPE_DIRECTORY=" + s.claim("c_small")}
	end, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the client is connected", func() bool {
		text, err := s.command("client", "list", "--format=csv,noheader")
		return err == nil && strings.Contains(text, "c_small")
	})
	next := claims()
	next.Namespaces = next.Namespaces[:1]
	s.configure(next)
	s.await(next)
	if _, err := os.Stat(s.claim("c_small")); err == nil || !slices.Contains(s.names(), "c_small") {
		t.Errorf("namespaces %v, folder %v", s.names(), err)
	}
	end.Close()
	if err := client.Wait(); err != nil {
		t.Errorf("the client: %v", err)
	}
	next.Namespaces[0].ActiveThreadPercentage = 60
	eventually(t, "the client is gone", func() bool {
		text, err := s.command("client", "list", "--format=csv,noheader")
		return err == nil && text == ""
	})
	s.configure(next)
	s.await(next)
	if slices.Contains(s.names(), "c_small") {
		t.Errorf("namespaces %v", s.names())
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
