package fakegpu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// mpsMachine is a machine with a folder for an MPS daemon and a client program.
type mpsMachine struct {
	dir, folder, probe string
}

func newMPS(t *testing.T, dir string) mpsMachine {
	t.Helper()
	folder, err := os.MkdirTemp("", "mps") // the path of a socket is limited
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(folder)) })
	must(t, os.Chmod(folder, 0o755))
	sources, err := filepath.Glob("../../env/probe/*.c")
	must(t, err)
	m := mpsMachine{dir: dir, folder: folder, probe: filepath.Join(folder, "probe")}
	output, err := exec.CommandContext(t.Context(), "gcc", append([]string{"-o", m.probe}, append(sources, "-ldl")...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("compile: %v\n%s", err, output)
	}
	return m
}

func (m mpsMachine) env(env ...string) []string {
	return append([]string{
		"LD_LIBRARY_PATH=" + filepath.Join(DriverRoot(m.dir), libraryFolder),
		"CUDA_MPS_PIPE_DIRECTORY=" + filepath.Join(m.folder, "pipe"), "CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(m.folder, "log"),
	}, env...)
}

// mpsDaemon is a running control daemon.
type mpsDaemon struct {
	mpsMachine
	process *os.Process
	ended   chan error
	log     *mpsLog
}

// mpsLog has the lines that a daemon has logged.
type mpsLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *mpsLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *mpsLog) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool { return strings.Contains(line, text) })
}

// start starts a control daemon and waits until it listens; it is killed with the test.
func (m mpsMachine) start(t *testing.T, flags, env []string) mpsDaemon {
	t.Helper()
	command := exec.CommandContext(t.Context(), MPSControl(m.dir), append([]string{"-f"}, flags...)...)
	command.Env = m.env(env...)
	stderr, err := command.StderrPipe()
	must(t, err)
	must(t, command.Start())
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "Starting control daemon using socket") {
	}
	d := mpsDaemon{mpsMachine: m, process: command.Process, ended: make(chan error, 1), log: &mpsLog{}}
	go func() {
		for lines.Scan() {
			d.log.add(lines.Text())
		}
		d.ended <- command.Wait()
	}()
	t.Cleanup(func() { command.Process.Kill() })
	return d
}

// send sends a line to the daemon and returns its answer.
func (m mpsMachine) send(t *testing.T, line string) string {
	t.Helper()
	answer, err := m.try(t, line)
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, answer)
	}
	return answer
}

func (m mpsMachine) try(t *testing.T, line string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), MPSControl(m.dir))
	command.Env = m.env()
	command.Stdin = strings.NewReader(line + "\n")
	output, err := command.CombinedOutput()
	return strings.TrimSpace(string(output)), err
}

// shared is what the probe reports as usable by a process.
type shared struct {
	Devices []struct {
		UUID                               string
		TotalMiB, FreeMiB, Multiprocessors int
	}
	AllocatedMiB, Refused int
	Failed                string
	Error                 int
}

// brief is free memory and multiprocessors of the first device, or the call that failed.
func (s shared) brief() string {
	if s.Failed != "" {
		return fmt.Sprintf("%s: %d", s.Failed, s.Error)
	}
	return fmt.Sprintf("%d devices, %d MiB, %d SMs, then %d", len(s.Devices), s.Devices[0].FreeMiB, s.Devices[0].Multiprocessors, s.Refused)
}

// share runs the probe; env is added to the daemon's.
func (m mpsMachine) share(t *testing.T, env []string, question ...string) shared {
	t.Helper()
	return answered(t, m.client(t, env, question...))
}

func (m mpsMachine) client(t *testing.T, env []string, question ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), m.probe, append([]string{"share"}, question...)...)
	command.Env = m.env(env...)
	return command
}

func answered(t *testing.T, command *exec.Cmd) shared {
	t.Helper()
	var exit *exec.ExitError
	output, err := command.Output()
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return parseShared(t, string(output))
}

func parseShared(t *testing.T, line string) shared {
	t.Helper()
	var s shared
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		t.Fatalf("the probe wrote %q: %v", line, err)
	}
	return s
}

// held is a client that polls its context.
type held struct {
	shared
	command *exec.Cmd
	lines   *bufio.Scanner
}

// hold starts a client that allocates so many MiB and waits for its context to fail.
func (m mpsMachine) hold(t *testing.T, mib int) *held {
	t.Helper()
	h := &held{command: m.client(t, nil, strconv.Itoa(mib), "3600")} // longer than any test
	out, err := h.command.StdoutPipe()
	must(t, err)
	must(t, h.command.Start())
	t.Cleanup(h.kill)
	h.lines = bufio.NewScanner(out)
	h.shared = h.next(t)
	return h
}

// kill ends the client and waits until the process has ended and its resources are free. A second call does
// nothing.
func (h *held) kill() {
	h.command.Process.Kill()
	h.command.Wait() //nolint:errcheck // it was killed, or has ended
}

func (h *held) next(t *testing.T) shared {
	t.Helper()
	if !h.lines.Scan() {
		t.Fatalf("the client ended: %v", h.lines.Err())
	}
	return parseShared(t, h.lines.Text())
}

func TestMPSLimits(t *testing.T) {
	t.Parallel()
	m := newMPS(t, install(t, Spec{Machine: "h100x2"}))
	first, second := catalog.UUID("node1", 0), catalog.UUID("node1", 1)
	tests := map[string]struct {
		daemon []string // its environment
		lines  []string
		client []string
		want   string
	}{
		"no limit":                       {want: "2 devices, 81079 MiB, 132 SMs, then 2"},
		"one device":                     {daemon: []string{"CUDA_VISIBLE_DEVICES=" + second}, want: "1 devices, 81079 MiB, 132 SMs, then 2"},
		"the daemon's":                   {lines: []string{"set_default_active_thread_percentage 25", "set_default_device_pinned_mem_limit 0 4608M"}, want: "2 devices, 4608 MiB, 32 SMs, then 2"},
		"by UUID":                        {daemon: []string{"CUDA_VISIBLE_DEVICES=" + second}, lines: []string{"set_default_device_pinned_mem_limit " + second + " 2G"}, want: "1 devices, 81079 MiB, 132 SMs, then 2"},
		"the daemon's environment":       {daemon: []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G,1=2G"}, want: "2 devices, 81079 MiB, 66 SMs, then 2"}, // of the memory there only that of clients counts
		"the client's":                   {client: []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=3G"}, want: "2 devices, 3072 MiB, 12 SMs, then 2"},
		"limits by position and UUID":    {lines: []string{"set_default_device_pinned_mem_limit 0 2G", "set_default_device_pinned_mem_limit " + catalog.UUID("node1", 0) + " 1G"}, want: "2 devices, 2048 MiB, 132 SMs, then 2"},
		"the client's limits are lower":  {lines: []string{"set_default_active_thread_percentage 25", "set_default_device_pinned_mem_limit 0 4G"}, client: []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G"}, want: "2 devices, 1024 MiB, 12 SMs, then 2"},
		"the client's limits are higher": {lines: []string{"set_default_active_thread_percentage 25", "set_default_device_pinned_mem_limit 0 4G"}, client: []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=9G"}, want: "2 devices, 4096 MiB, 32 SMs, then 2"},
		"a device that it has not":       {daemon: []string{"CUDA_VISIBLE_DEVICES=" + second}, client: []string{"CUDA_VISIBLE_DEVICES=" + first}, want: "cuInit: 100"},
		"devices have the daemon's":      {daemon: []string{"CUDA_VISIBLE_DEVICES=" + second}, client: []string{"CUDA_VISIBLE_DEVICES=0"}, want: "1 devices, 81079 MiB, 132 SMs, then 2"},
		"a number the daemon has not":    {daemon: []string{"CUDA_VISIBLE_DEVICES=" + second}, client: []string{"CUDA_VISIBLE_DEVICES=1"}, want: "cuInit: 100"},
		"unknown devices":                {daemon: []string{"CUDA_VISIBLE_DEVICES=GPU-none"}, want: "cuInit: 805"},
		"another pipe, hence no daemon":  {daemon: []string{"CUDA_VISIBLE_DEVICES=" + second}, client: []string{"CUDA_MPS_PIPE_DIRECTORY=/nonexistent"}, want: "2 devices, 81079 MiB, 132 SMs, then 2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := m.start(t, nil, test.daemon)
			for _, line := range test.lines {
				d.send(t, line)
			}
			if got := d.share(t, test.client).brief(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			d.send(t, "quit")
			if err := <-d.ended; err != nil {
				t.Errorf("after quit: %v", err)
			}
		})
	}
}

// TestMPSCommands: the daemon's answers and refusals.
func TestMPSCommands(t *testing.T) {
	t.Parallel()
	m := newMPS(t, install(t, Spec{Machine: "h100x2"}))
	if answer, err := m.try(t, "get_server_list"); err == nil || answer != "Cannot find MPS control daemon process" {
		t.Errorf("without a daemon: %v: %s", err, answer)
	}
	d := m.start(t, nil, []string{"CUDA_VISIBLE_DEVICES=" + catalog.UUID("node1", 1)})
	second := exec.CommandContext(t.Context(), MPSControl(m.dir), "-d")
	second.Env = m.env()
	if output, err := second.CombinedOutput(); err == nil || string(output) != "An instance of this daemon is already running\n" {
		t.Errorf("a second daemon: %v: %s", err, output)
	}
	client := d.hold(t, 16)
	server := d.send(t, "get_server_list")
	if got := d.send(t, "get_client_list "+server); got != strconv.Itoa(client.command.Process.Pid) {
		t.Errorf("clients: %s, want %d", got, client.command.Process.Pid)
	}
	for _, test := range []struct{ line, want string }{
		{"get_default_active_thread_percentage", "100.0"},
		{"set_default_active_thread_percentage 12.5", "12.5"},
		{"get_default_active_thread_percentage", "12.5"},
		{"get_active_thread_percentage " + server, "100.0"},
		{"set_active_thread_percentage " + server + " 30", "30.0"},
		{"get_active_thread_percentage " + server, "30.0"},
		{"set_active_thread_percentage 1 30", "Server 1 not found"},
		{"set_default_active_thread_percentage 0", "12.5"},
		{"set_default_active_thread_percentage 101", "12.5"},
		{"set_default_device_pinned_mem_limit 0 1536M", ""},
		{"get_default_device_pinned_mem_limit 0", "1G"}, // as drivers show it
		{"set_default_device_pinned_mem_limit 0 512M", ""},
		{"get_default_device_pinned_mem_limit 0", "512M"},
		{"set_device_pinned_mem_limit " + server + " 0 2G", ""},
		{"get_device_pinned_mem_limit " + server + " 0", "2G"},
		{"set_default_device_pinned_mem_limit 1 1G", ""},
		{"set_default_device_pinned_mem_limit " + catalog.UUID("node1", 0) + " 1G", ""},
		{"set_default_device_pinned_mem_limit " + catalog.UUID("node1", 1) + " 3G", ""},
		{"get_default_device_pinned_mem_limit " + catalog.UUID("node1", 1), "3G"}, // apart from that of the position (measured on an H200, driver 580)
		{"get_default_device_pinned_mem_limit 0", "512M"},
		{"get_server_status " + server, "ACTIVE"},
		{"start_server -uid 0", ""},
		{"terminate_client " + server + " 1", "201"},
	} {
		if got := d.send(t, test.line); got != test.want {
			t.Errorf("%s: got %q, want %q", test.line, got, test.want)
		}
	}
	if got := d.send(t, "ps"); !strings.Contains(got, strconv.Itoa(client.command.Process.Pid)) {
		t.Errorf("ps does not show the client: %s", got)
	}
	// Later clients get the server's new limits; the connected one keeps its own.
	if got := d.share(t, nil).brief(); got != "1 devices, 2048 MiB, 38 SMs, then 2" {
		t.Errorf("a later client: %s", got)
	}
	for _, want := range []string{"Cmd:set_default_device_pinned_mem_limit 0 1536M", "Device pinned memory limit for device 0 set to 0x80000000 bytes"} {
		for !d.log.contains(want) { // the line has been written, but may not have been read
		}
	}
	if files, err := filepath.Glob(filepath.Join(m.folder, "log", "*")); err != nil || len(files) > 0 {
		t.Errorf("a daemon in the foreground wrote %v, %v", files, err)
	}
	pid, err := os.ReadFile(filepath.Join(m.folder, "pipe", "nvidia-cuda-mps-control.pid"))
	if err != nil || string(pid) != strconv.Itoa(d.process.Pid) {
		t.Errorf("the file with the process ID: %s, %v, want %d", pid, err, d.process.Pid)
	}
}

// TestMPSMemory: the clients of a device share its memory.
func TestMPSMemory(t *testing.T) {
	t.Parallel()
	d := newMPS(t, install(t, Spec{Machine: "t4x1"})).start(t, nil, nil)
	whole := d.share(t, nil).AllocatedMiB
	first := d.hold(t, whole-1000)
	if got := d.share(t, nil).AllocatedMiB; got != 999 { // the first has taken one more
		t.Errorf("with another client: %d MiB, want 999", got)
	}
	first.kill()
	for d.send(t, "get_client_list "+d.send(t, "get_server_list")) != "" {
	}
	if got := d.share(t, nil).AllocatedMiB; got != whole {
		t.Errorf("after it: %d MiB, want %d", got, whole)
	}
}

// TestMPSEnds: the effect of the end of a daemon, a server or a client's permission on the client; no
// process of the daemon remains.
func TestMPSEnds(t *testing.T) {
	t.Parallel()
	dir := install(t, Spec{Machine: "h100x2"})
	const gone, terminated = 806, 810
	tests := map[string]struct {
		end    func(t *testing.T, d mpsDaemon, server string, client *held)
		want   int
		stays  bool // the control daemon does
		status string
	}{
		"the control daemon is killed": {want: gone, status: "signal: killed",
			end: func(t *testing.T, d mpsDaemon, _ string, _ *held) { must(t, d.process.Kill()) }},
		"the control daemon is ended": {want: gone, status: "exit status 1",
			end: func(t *testing.T, d mpsDaemon, _ string, _ *held) { must(t, d.process.Signal(syscall.SIGTERM)) }},
		"the server is killed": {want: gone, stays: true, end: func(t *testing.T, _ mpsDaemon, server string, _ *held) {
			pid, err := strconv.Atoi(server)
			must(t, err)
			must(t, syscall.Kill(pid, syscall.SIGKILL))
		}},
		"the client is terminated": {want: terminated, stays: true, end: func(t *testing.T, d mpsDaemon, server string, client *held) {
			d.send(t, fmt.Sprintf("terminate_client %s %d", server, client.command.Process.Pid))
		}},
		"quit does not wait any longer": {want: terminated, status: "", end: func(t *testing.T, d mpsDaemon, _ string, _ *held) {
			d.send(t, "quit -t 0")
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newMPS(t, dir).start(t, nil, []string{"CUDA_VISIBLE_DEVICES=0"})
			client := d.hold(t, 16)
			test.end(t, d, d.send(t, "get_server_list"), client)
			if got := client.next(t); got.Failed != "cuCtxSynchronize" || got.Error != test.want {
				t.Errorf("the client: %s, want error %d", got.brief(), test.want)
			}
			if test.stays {
				if got := d.share(t, nil).brief(); got != "1 devices, 81079 MiB, 132 SMs, then 2" {
					t.Errorf("a new client: %s", got)
				}
				return
			}
			if err := <-d.ended; err != nil && err.Error() != test.status || err == nil && test.status != "" {
				t.Errorf("the control daemon ended with %v, want %q", err, test.status)
			}
			if got := d.share(t, nil); len(got.Devices) != 2 {
				t.Errorf("a process that finds no daemon: %s, want all devices", got.brief())
			}
		})
	}
}

// TestMPSQuit: quit waits for the existing clients, accepts no new ones, and reports how the daemon ended.
func TestMPSQuit(t *testing.T) {
	t.Parallel()
	d := newMPS(t, install(t, Spec{Machine: "t4x1"})).start(t, nil, nil)
	client := d.hold(t, 16)
	result := make(chan string, 1)
	go func() {
		answer, err := d.try(t, "quit")
		result <- fmt.Sprint(answer, err)
	}()
	for d.share(t, nil).brief() != "cuInit: 807" {
	}
	select {
	case got := <-result:
		t.Errorf("quit did not wait: %s", got)
	default:
	}
	client.kill()
	if got := <-result; got != "<nil>" {
		t.Errorf("quit: %s", got)
	}
}

// TestMPSInherits: the server inherits what the daemon inherits, so that a lock shows whether one of them
// still runs.
func TestMPSInherits(t *testing.T) {
	t.Parallel()
	m := newMPS(t, install(t, Spec{Machine: "t4x1"}))
	read, write, err := os.Pipe()
	must(t, err)
	command := exec.CommandContext(t.Context(), MPSControl(m.dir), "-d")
	command.Env, command.ExtraFiles = m.env(), []*os.File{write}
	must(t, command.Run())
	must(t, write.Close())
	client := m.hold(t, 16)
	for _, pid := range []string{m.send(t, "get_server_list"), text(readFile(t, filepath.Join(m.folder, "pipe", "nvidia-cuda-mps-control.pid")))} {
		if _, err := os.Readlink("/proc/" + pid + "/fd/3"); err != nil {
			t.Errorf("process %s has no descriptor 3: %v", pid, err)
		}
	}
	client.kill()
	m.send(t, "quit")
	if n, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes, %v, want the end", n, err)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

// TestComputeModes: which processes may be on a GPU at once.
func TestComputeModes(t *testing.T) {
	t.Parallel()
	dir := install(t, Spec{Machine: "t4x1"})
	m := newMPS(t, dir)
	const free, busy = "1 devices, 14910 MiB, 40 SMs, then 2", "cuCtxCreate: 46"
	expectShare := func(what, want string, env ...string) {
		t.Helper()
		if got := m.share(t, env).brief(); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	direct := []string{"CUDA_MPS_PIPE_DIRECTORY=/nonexistent"}
	play(t, dir, "$ nvidia-smi -c PROHIBITED")
	expectShare("prohibited", busy, direct...)
	play(t, dir, "$ nvidia-smi -c EXCLUSIVE_PROCESS")
	expectShare("exclusive, alone", free, direct...)
	alone := m.hold(t, 16)
	expectShare("exclusive, with another client", busy, direct...)
	alone.kill()
	expectShare("exclusive, after it", free, direct...)

	d := m.start(t, nil, nil)
	first := d.hold(t, 16)
	expectShare("exclusive, a second client", "1 devices, 14893 MiB, 40 SMs, then 2")
	expectShare("exclusive, around the daemon", busy, direct...)
	first.kill()
	d.send(t, "quit")
	expectShare("exclusive, after the daemon", free, direct...)

	outsider := m.hold(t, 16)
	m.start(t, nil, nil)
	expectShare("a daemon that cannot have the GPU", "cuInit: 805")
	outsider.kill()
	play(t, dir, "$ nvidia-smi -c DEFAULT")
	expectShare("default, with a daemon", free)
	expectShare("default, around the daemon", free, direct...)
}

// TestMPSOnMIG: a daemon for one MIG device.
func TestMPSOnMIG(t *testing.T) {
	t.Parallel()
	dir := install(t, Spec{Machine: "h100x2"})
	play(t, dir, "$ nvidia-smi -i 0 -mig 1\n$ nvidia-smi mig -i 0 -cgi 19,19 -C")
	state, err := Read(dir)
	must(t, err)
	uuid := state.GPUs[0].Instances[1].Computes[0].UUID
	m := newMPS(t, dir)
	d := m.start(t, nil, []string{"CUDA_VISIBLE_DEVICES=" + uuid})
	d.send(t, "set_default_active_thread_percentage 50")
	d.send(t, "set_default_device_pinned_mem_limit 0 1G")
	got := d.share(t, []string{"CUDA_VISIBLE_DEVICES=" + uuid})
	if got.brief() != "1 devices, 1024 MiB, 8 SMs, then 2" || got.Devices[0].UUID != uuid {
		t.Errorf("got %s on %+v", got.brief(), got.Devices)
	}
	output := play(t, dir, fmt.Sprintf("$ nvidia-smi mig -i 0 -dci -gi %d", state.GPUs[0].Instances[1].ID))
	if !strings.Contains(output, "In use") {
		t.Errorf("the server's instance was destroyed:\n%s", output)
	}
}

// TestMPSShared: a client requires the daemon's shared memory.
func TestMPSShared(t *testing.T) {
	t.Parallel()
	d := newMPS(t, install(t, Spec{Machine: "t4x1"})).start(t, nil, nil)
	command := exec.CommandContext(t.Context(), "sh", "-c", "mount -t tmpfs none /dev/shm && exec "+d.probe+" share")
	command.Env = d.env("PATH=" + os.Getenv("PATH"))
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	output, err := command.Output()
	if errors.Is(err, os.ErrPermission) || len(output) == 0 {
		t.Skipf("needs the right to mount: %v", err)
	}
	if got := parseShared(t, string(output)).brief(); got != "cuInit: 805" {
		t.Errorf("with another /dev/shm: %s", got)
	}
	if got := d.share(t, nil).brief(); got != "1 devices, 14910 MiB, 40 SMs, then 2" {
		t.Errorf("with the same: %s", got)
	}
}

// TestMPSUsers: a server serves one user, unless the daemon was started for several users.
func TestMPSUsers(t *testing.T) {
	t.Parallel()
	dir := installAll(t, Spec{Machine: "t4x1"})
	must(t, os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755))
	must(t, MakeNodes(dir))
	nodes := []string{"FAKE_NVML_DEV=" + filepath.Join(DevRoot(dir), "dev")} // the fake takes a user other than root for a container
	as := func(d mpsDaemon, uid uint32) string {
		command := d.client(t, nodes, "16")
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		s := answered(t, command)
		return fmt.Sprint(s.Failed, s.Error, s.AllocatedMiB)
	}
	const fine, notReady, noDevice = "0 16", "cuInit807 0", "cuInit100 0"
	m := newMPS(t, dir)
	shared := m.start(t, []string{"-multiuser-server"}, nil)
	shared.hold(t, 16)
	switch got := as(shared, 1000); got {
	case noDevice:
		t.Skip("the device cgroup does not let the fake's nodes be opened")
	case fine:
	default:
		t.Errorf("another user, where that does not matter: %s", got)
	}
	shared.process.Signal(syscall.SIGTERM)
	<-shared.ended

	separate := m.start(t, nil, nodes)
	client := separate.hold(t, 16)
	if got := as(separate, 1000); got != notReady {
		t.Errorf("another user with a client: %s, want %s", got, notReady)
	}
	client.kill()
	for separate.send(t, "get_client_list "+separate.send(t, "get_server_list")) != "" {
	}
	if got := as(separate, 1000); got != fine {
		t.Errorf("another user after the client: %s, want %s", got, fine)
	}
	unprivileged := exec.CommandContext(t.Context(), MPSControl(dir))
	unprivileged.Env, unprivileged.Stdin = m.env(), strings.NewReader("quit\n")
	unprivileged.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	output, err := unprivileged.CombinedOutput()
	if diff := cmp.Diff("Cannot find MPS control daemon process\n", string(output)); err == nil || diff != "" {
		t.Errorf("another user's command was taken: %v\n%s", err, diff)
	}
}
