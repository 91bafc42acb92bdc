package mps

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// stage is a daemon's folder with a supervisor and the fake program.
type stage struct {
	t           *testing.T
	folder, dir string
	// settings are additional variables of the supervisor's environment.
	settings   []string
	supervisor *exec.Cmd
	// log is what the supervisor and its daemon wrote; it is complete when the supervisor has ended.
	log *strings.Builder
}

func newStage(t *testing.T, settings ...string) *stage {
	t.Helper()
	s := &stage{t: t, folder: t.TempDir(), dir: t.TempDir(), settings: settings}
	s.install()
	s.start()
	return s
}

// install puts the fake program at the path of the driver's program.
func (s *stage) install() {
	s.t.Helper()
	// A program with the race detector sleeps for a second before it exits, unless configured otherwise.
	data, err := filepath.Abs("testdata")
	if err != nil {
		s.t.Fatal(err)
	}
	program := "#!/bin/sh\nexport " + testdataVariable + "='" + data + "' GORACE=atexit_sleep_ms=0 " + roleVariable + "=control " + stageVariable + "='" + s.dir + "'\nexec '" + os.Args[0] + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(s.dir, "nvidia-cuda-mps-control"), []byte(program), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) start() {
	s.t.Helper()
	s.supervisor = exec.Command(os.Args[0])
	s.supervisor.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", roleVariable+"=supervisor", folderVariable+"="+s.folder, stageVariable+"="+s.dir)
	s.supervisor.Env = append(s.supervisor.Env, s.settings...)
	logged := &strings.Builder{}
	s.log, s.supervisor.Stdout, s.supervisor.Stderr = logged, logged, logged
	// Processes that remain after an unclean end hold the output open.
	s.supervisor.WaitDelay = time.Second
	if err := s.supervisor.Start(); err != nil {
		s.t.Fatal(err)
	}
	supervisor := s.supervisor
	s.t.Cleanup(func() {
		if supervisor.ProcessState == nil {
			_ = supervisor.Process.Signal(syscall.SIGTERM)
			_ = supervisor.Wait()
		}
		if s.t.Failed() {
			s.t.Logf("log of the supervisor:\n%s", logged)
		}
	})
}

func (s *stage) configure(c configuration) {
	s.t.Helper()
	if err := write(nil, s.folder, configName, c); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) pods() *Pods { return New(Config{Dir: filepath.Dir(s.folder)}) }

func (s *stage) observe() (state, bool) {
	s.t.Helper()
	seen, serves, err := s.pods().observe(filepath.Base(s.folder))
	if err != nil {
		s.t.Fatal(err)
	}
	return seen, serves
}

// await waits until the daemon serves with the configuration.
func (s *stage) await(c configuration) state {
	s.t.Helper()
	var seen state
	eventually(s.t, "the daemon serves", func() bool {
		var serves bool
		seen, serves = s.observe()
		return serves && seen.Config.equals(c, seen.Protocol)
	})
	return seen
}

// read returns what the fake program wrote.
func (s *stage) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(text)
}

func (s *stage) commands() []string {
	s.t.Helper()
	return strings.Split(strings.TrimSpace(s.read("commands")), "\n")
}

// pid returns the control daemon's process.
func (s *stage) pid() int {
	s.t.Helper()
	pid, _, _ := strings.Cut(s.read("daemon"), " ")
	number, err := strconv.Atoi(pid)
	if err != nil {
		s.t.Fatal(err)
	}
	return number
}

// connect connects a client and returns the process of its server.
func (s *stage) connect() int {
	s.t.Helper()
	d := legacy{&control{
		program: filepath.Join(s.dir, "nvidia-cuda-mps-control"), timeouts: longTimeouts(),
		env: []string{"CUDA_MPS_PIPE_DIRECTORY=" + filepath.Join(s.folder, pipeName)},
	}}
	answer, err := d.command(s.t.Context(), "connect")
	if err != nil {
		s.t.Fatal(err)
	}
	pid, err := strconv.Atoi(answer)
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

func (s *stage) held(offset int64) bool {
	s.t.Helper()
	held, err := isLocked(s.folder, offset)
	if err != nil {
		s.t.Fatal(err)
	}
	return held
}

func (s *stage) signal(signal syscall.Signal) error {
	s.t.Helper()
	if err := s.supervisor.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
	return s.supervisor.Wait()
}

// runs reports whether the process exists and is not a zombie.
func runs(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for limit := time.After(harness.Patience); !condition(); {
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("not within %v: %s", harness.Patience, what)
		}
	}
}

var limited = configuration{Name: "mps-gpu", GPU: "gpu", Visible: "GPU-1,GPU-2", ActiveThreadPercentage: 40, PinnedMemoryBytes: 3<<30 + 1000}

func TestSupervisorServesUnderLimits(t *testing.T) {
	s := newStage(t)
	s.configure(limited)
	seen := s.await(limited)
	if seen.Pod != "pod-1" || seen.Restarts != 0 || seen.LastError != "" {
		t.Errorf("state of a daemon that serves: %+v", seen)
	}
	if !strings.HasSuffix(s.read("daemon"), "-f "+multiuserOptions[0]) {
		t.Errorf("the daemon was started as %q", s.read("daemon"))
	}
	for _, want := range []string{
		"CUDA_VISIBLE_DEVICES=GPU-1,GPU-2", "CUDA_MPS_PIPE_DIRECTORY=" + filepath.Join(s.folder, "pipe"), "CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(s.folder, "log"),
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40",
	} {
		if !strings.Contains("\n"+s.read("environment")+"\n", "\n"+want+"\n") {
			t.Errorf("the daemon's environment lacks %s", want)
		}
	}
	if pipe, err := os.Stat(filepath.Join(s.folder, "pipe")); err != nil || pipe.Mode().Perm() != openMode {
		t.Errorf("the folder of the sockets of a daemon that serves: %v, %v", pipe.Mode(), err)
	}
	want := []string{
		"set_default_active_thread_percentage 40",
		"set_default_device_pinned_mem_limit 0 3072M", "set_default_device_pinned_mem_limit 1 3072M",
	}
	if diff := cmp.Diff(want, s.commands()); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if target, err := os.Readlink(filepath.Join(s.folder, "lib/libcuda.so.1")); err != nil || target != "/driver/libcuda.so.1" {
		t.Errorf("the driver's library: %s, %v", target, err)
	}
}

// byDevice has limits of two of three devices.
var byDevice = configuration{Name: "mps-claim", ClaimUID: "claim", Visible: "GPU-1,GPU-2,GPU-3", DeviceMemoryBytes: "1073741824,0,3221226472"}

// The devices of a claim have different memory limits: commands have each at its position, and a change of one reaches running servers
// without a restart. No command removes a limit.
func TestSupervisorLimitsDevices(t *testing.T) {
	s := newStage(t)
	s.configure(byDevice)
	s.await(byDevice)
	if diff := cmp.Diff([]string{"set_default_device_pinned_mem_limit 0 1024M", "set_default_device_pinned_mem_limit 2 3072M"}, s.commands()); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	daemon, server := s.pid(), strconv.Itoa(s.connect())
	other := byDevice
	other.DeviceMemoryBytes = "1073741824,2147483648,734003200"
	s.configure(other)
	s.await(other)
	want := []string{
		"set_default_device_pinned_mem_limit 0 1024M", "set_default_device_pinned_mem_limit 1 2048M", "set_default_device_pinned_mem_limit 2 700M",
		"set_device_pinned_mem_limit " + server + " 0 1024M", "set_device_pinned_mem_limit " + server + " 1 2048M", "set_device_pinned_mem_limit " + server + " 2 700M",
	}
	got := slices.DeleteFunc(s.commands()[2:], func(line string) bool { // to the server that was there before
		return !strings.HasPrefix(line, "set_default") && !strings.Contains(line, " "+server+" ")
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	one := other
	one.DeviceMemoryBytes, one.PinnedMemoryBytes = "", 2<<30
	s.configure(one)
	s.await(one)
	if s.pid() != daemon {
		t.Error("another daemon was started for a change of limits")
	}
	s.configure(byDevice)
	if seen := s.await(byDevice); s.pid() == daemon || seen.Restarts != 0 {
		t.Errorf("the daemon was not replaced to remove the limit of one device: %+v", seen)
	}
}

// A limit of one device that the driver refuses is found at its position.
func TestSupervisorReadsLimitsOfDevicesBack(t *testing.T) {
	s := newStage(t)
	s.configure(byDevice)
	s.await(byDevice)
	if err := os.WriteFile(filepath.Join(s.dir, "ignore"), []byte("set_default_device_pinned_mem_limit"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := byDevice
	other.DeviceMemoryBytes = "1073741824,0,5368709120"
	s.configure(other)
	eventually(t, "the refusal is reported", func() bool {
		seen, serves := s.observe()
		return serves && cmp.Equal(seen.Config, byDevice) && strings.Contains(seen.LastError, `set_default_device_pinned_mem_limit 2 5120M: the daemon has "3G" instead of "5G"`)
	})
}

// An agent or supervisor of the release before reads one limit as it always did, and ignores limits by device.
func TestConfigurationForEarlierReleases(t *testing.T) {
	for name, test := range map[string]struct {
		c    configuration
		want string
	}{
		"one limit":        {limited, `{"name":"mps-gpu","gpu":"gpu","visible":"GPU-1,GPU-2","activeThreadPercentage":40,"pinnedMemoryBytes":3221226472}`},
		"limits by device": {byDevice, `{"name":"mps-claim","claimUID":"claim","visible":"GPU-1,GPU-2,GPU-3","deviceMemoryBytes":"1073741824,0,3221226472"}`},
	} {
		if got, err := json.Marshal(test.c); err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
	}
}

// Programs of older drivers have no option for several users, and end with it; that of 535 has no command for the state of a server.
func TestSupervisorRunsOlderDrivers(t *testing.T) {
	for _, driver := range []string{"535", "550"} {
		t.Run(driver, func(t *testing.T) {
			s := newStage(t)
			if err := os.WriteFile(filepath.Join(s.dir, "release"), []byte(driver), 0o600); err != nil {
				t.Fatal(err)
			}
			s.configure(limited)
			if seen := s.await(limited); seen.Restarts != 0 || seen.LastError != "" {
				t.Errorf("state of a daemon that serves: %+v", seen)
			}
			if !strings.HasSuffix(s.read("daemon"), " -f") {
				t.Errorf("the daemon was started as %q", s.read("daemon"))
			}
			if err := s.signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if log := s.log.String(); !strings.Contains(log, "one user at a time") {
				t.Errorf("the log does not name the restriction:\n%s", log)
			}
		})
	}
}

// A second claim has other limits: running servers get them too, and no client loses its connection.
func TestSupervisorFollowsLimits(t *testing.T) {
	s := newStage(t)
	s.configure(limited)
	s.await(limited)
	daemon, server := s.pid(), strconv.Itoa(s.connect())
	wider := limited
	wider.ActiveThreadPercentage, wider.PinnedMemoryBytes = 0, 5<<30
	s.configure(wider)
	s.await(wider)
	want := []string{
		"set_default_active_thread_percentage 100",
		"set_default_device_pinned_mem_limit 0 5120M", "set_default_device_pinned_mem_limit 1 5120M",
		"set_active_thread_percentage " + server + " 100",
		"set_device_pinned_mem_limit " + server + " 0 5120M", "set_device_pinned_mem_limit " + server + " 1 5120M",
	}
	got := slices.DeleteFunc(s.commands()[3:], func(line string) bool { // to the server that was there before
		return !strings.HasPrefix(line, "set_default") && !strings.Contains(line, " "+server+" ")
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if s.pid() != daemon {
		t.Error("another daemon was started for a change of limits")
	}
}

// Drivers refuse a limit without a word.
func TestSupervisorReadsLimitsBack(t *testing.T) {
	s := newStage(t)
	s.configure(limited)
	s.await(limited)
	if err := os.WriteFile(filepath.Join(s.dir, "ignore"), []byte("set_default_device_pinned_mem_limit"), 0o600); err != nil {
		t.Fatal(err)
	}
	wider := limited
	wider.PinnedMemoryBytes = 5 << 30
	s.configure(wider)
	eventually(t, "the refusal is reported", func() bool {
		seen, serves := s.observe()
		return serves && cmp.Equal(seen.Config, limited) && strings.Contains(seen.LastError, `set_default_device_pinned_mem_limit 0 5120M: the daemon has "3G" instead of "5G"`)
	})
}

// Clients depend on a daemon that serves: limits that it rejects are no reason to end it.
func TestSupervisorKeepsDaemonThatRefusesLimits(t *testing.T) {
	s := newStage(t)
	s.configure(limited)
	s.await(limited)
	daemon := s.pid()
	deny := filepath.Join(s.dir, "deny")
	if err := os.WriteFile(deny, []byte("set_default_device_pinned_mem_limit"), 0o600); err != nil {
		t.Fatal(err)
	}
	wider := limited
	wider.PinnedMemoryBytes = 5 << 30
	s.configure(wider)
	eventually(t, "the refusal is reported", func() bool {
		seen, serves := s.observe()
		return serves && cmp.Equal(seen.Config, limited) && seen.Restarts == 0 && strings.Contains(seen.LastError, "denied")
	})
	if err := os.Remove(deny); err != nil {
		t.Fatal(err)
	}
	s.await(wider)
	if s.pid() != daemon {
		t.Error("the daemon was replaced")
	}
}

func TestSupervisorReplacesDaemonForOtherDevices(t *testing.T) {
	s := newStage(t)
	s.configure(limited)
	s.await(limited)
	daemon, server := s.pid(), s.connect()
	free := limited
	free.PinnedMemoryBytes = 0 // no command removes a memory limit
	s.configure(free)
	seen := s.await(free)
	if s.pid() == daemon || runs(daemon) || runs(server) {
		t.Error("the former daemon was not replaced as a whole")
	}
	if seen.Restarts != 0 {
		t.Errorf("a wanted restart was counted as a failure: %+v", seen)
	}
}

func TestSupervisorWithoutConfiguration(t *testing.T) {
	s := newStage(t)
	eventually(t, "the supervisor holds the lock", func() bool { return s.held(aliveByte) })
	if s.read("daemon") != "" || s.held(servingByte) {
		t.Error("a daemon runs that was not requested")
	}
	s.configure(limited)
	s.await(limited)
	daemon := s.pid()
	if err := os.Remove(filepath.Join(s.folder, configName)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon ends with its configuration", func() bool { return !s.held(servingByte) && !runs(daemon) })
	if !s.held(aliveByte) {
		t.Error("the supervisor is gone")
	}
}

func TestSupervisorRestartsDaemon(t *testing.T) {
	s := newStage(t)
	s.configure(limited)
	s.await(limited)
	daemon, server := s.pid(), s.connect()
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another daemon serves", func() bool {
		seen, serves := s.observe()
		return serves && seen.Restarts == 1
	})
	seen := s.await(limited)
	if !strings.Contains(seen.LastError, "nvidia-cuda-mps-control ended: signal: killed") || seen.LastErrorAt.IsZero() {
		t.Errorf("state: %+v", seen)
	}
	if runs(server) {
		t.Error("a server of the dead daemon still runs")
	}
	if diff := cmp.Diff(s.commands()[:3], s.commands()[3:]); diff != "" {
		t.Errorf("commands to the second daemon (-first +second):\n%s", diff)
	}
}

// TestMuteDaemon: a daemon that accepts commands and answers nothing is no reason to wait without end, and is ended.
func TestMuteDaemon(t *testing.T) {
	s := &stage{t: t, folder: t.TempDir(), dir: t.TempDir()}
	s.install()
	lock, err := os.Create(filepath.Join(s.folder, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	d, err := start(t.Context(), Program{Path: filepath.Join(s.dir, "nvidia-cuda-mps-control")}, s.folder, limited, 0, lock, longTimeouts())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "mute"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.timeouts = timeouts{start: 200 * time.Millisecond, command: 100 * time.Millisecond, quit: 100 * time.Millisecond}
	if err := d.ready(t.Context()); err == nil || !strings.Contains(err.Error(), "the daemon does not respond") {
		t.Errorf("ready: %v", err)
	}
	if err := d.commands.change(t.Context(), configuration{}, limited); err == nil {
		t.Error("the limits were set")
	}
	if err := d.quit(t.Context()); err == nil {
		t.Error("it has quit by itself")
	}
	select {
	case <-d.done:
	default:
		t.Error("the daemon runs on")
	}
}

func TestSupervisorReportsStartFailure(t *testing.T) {
	tests := map[string]struct {
		harm    func(s *stage) (repair func())
		message string
	}{
		"the daemon refuses": {message: "ended: exit status 1: no such device", harm: func(s *stage) func() {
			path := filepath.Join(s.dir, "refuse")
			if err := os.WriteFile(path, []byte("no such device"), 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(path) }
		}},
		"there is no driver": {message: "find nvidia-cuda-mps-control", harm: func(s *stage) func() {
			if err := os.Remove(filepath.Join(s.dir, "nvidia-cuda-mps-control")); err != nil {
				t.Fatal(err)
			}
			return s.install
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			repair := test.harm(s)
			s.configure(limited)
			eventually(t, "it is tried again", func() bool {
				seen, serves := s.observe()
				return !serves && seen.Restarts >= 2 && strings.Contains(seen.LastError, test.message)
			})
			if s.held(servingByte) {
				t.Error("a daemon is reported as serving")
			}
			repair()
			s.await(limited)
		})
	}
}

func TestSupervisorEndsItsDaemon(t *testing.T) {
	for stubborn, settings := range map[string][]string{"": nil, "stubborn": {quitVariable + "=5s"}} {
		t.Run("it is "+stubborn, func(t *testing.T) {
			s := newStage(t, settings...)
			s.configure(limited)
			s.await(limited)
			daemon, server := s.pid(), s.connect()
			if stubborn != "" {
				if err := os.WriteFile(filepath.Join(s.dir, stubborn), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.signal(syscall.SIGTERM); err != nil {
				t.Errorf("the supervisor: %v", err)
			}
			if commands := s.commands(); commands[len(commands)-1] != "quit" {
				t.Errorf("the last command was %q", commands[len(commands)-1])
			}
			if runs(daemon) || runs(server) || s.held(aliveByte) || s.held(servingByte) {
				t.Error("something of the daemon is left")
			}
			if seen, _ := s.observe(); seen.Serving || seen.Restarts != 0 {
				t.Errorf("state: %+v", seen)
			}
		})
	}
}

// A killed supervisor ends its daemon, which the lock shows.
func TestSupervisorIsKilled(t *testing.T) {
	s := newStage(t)
	s.configure(limited)
	s.await(limited)
	daemon := s.pid()
	if err := s.signal(syscall.SIGKILL); err == nil {
		t.Fatal("the supervisor ended well")
	}
	eventually(t, "the daemon dies and the lock is free", func() bool { return !runs(daemon) && !s.held(aliveByte) })
	if _, serves := s.observe(); serves {
		t.Error("the state that the dead left counts")
	}
	s.start()
	seen := s.await(limited)
	if seen.Restarts != 1 || seen.LastError == "" {
		t.Errorf("state of the next life: %+v", seen)
	}
}

// The daemon and its servers have contexts on the GPU without any client, which must not count as clients.
func TestProcessesOfDaemon(t *testing.T) {
	s := newStage(t)
	s.configure(limited)
	s.await(limited)
	server := s.connect()
	p := &Pods{Config: Config{Dir: filepath.Dir(s.folder)}}
	pids, err := p.Processes(filepath.Base(s.folder))
	if err != nil || !slices.Contains(pids, server) || slices.Contains(pids, os.Getpid()) {
		t.Errorf("processes %v, %v, want the server %d and not the client %d", pids, err, server, os.Getpid())
	}
	if pids, err := p.Processes("missing"); err != nil || len(pids) > 0 {
		t.Errorf("processes of a missing daemon: %v, %v", pids, err)
	}
}

// Remaining processes of an earlier supervisor hold the lock and the GPU: they must not block the next one.
func TestSupervisorKillsLockHolders(t *testing.T) {
	s := newStage(t)
	s.configure(limited)
	s.await(limited)
	server := s.connect()
	if err := s.signal(syscall.SIGKILL); err == nil {
		t.Fatal("the supervisor ended well")
	}
	if !runs(server) || !s.held(aliveByte) {
		t.Fatal("the server, which inherited the lock, must outlive its daemon for this test")
	}
	s.start()
	s.await(limited)
	eventually(t, "the server ends", func() bool { return !runs(server) })
}

// The fake driver's daemon is as strict as NVIDIA's: it must be found with its libraries, and accept every command.
func TestSupervisorRunsTheFakeDriver(t *testing.T) {
	machine := t.TempDir()
	if err := fakegpu.InstallDriver(t.Context(), machine, fakegpu.Spec{Machine: "h100x2"}); err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "mps") // the path of a socket is limited in length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	s := &stage{t: t, folder: folder, dir: t.TempDir()}
	if err := os.Symlink(fakegpu.MPSControl(machine), filepath.Join(s.dir, "nvidia-cuda-mps-control")); err != nil {
		t.Fatal(err)
	}
	s.start()
	c := limited
	c.Visible = catalog.UUID("node1", 0) + "," + catalog.UUID("node1", 1)
	s.configure(c)
	s.await(c)
	d := legacy{&control{program: fakegpu.MPSControl(machine), timeouts: longTimeouts(), env: []string{
		"LD_LIBRARY_PATH=" + filepath.Join(folder, libName), "CUDA_MPS_PIPE_DIRECTORY=" + filepath.Join(folder, pipeName),
	}}}
	for line, want := range map[string]string{
		"get_default_active_thread_percentage": "40.0", "get_default_device_pinned_mem_limit 0": "3G", "get_default_device_pinned_mem_limit 1": "3G",
	} {
		if got, err := d.command(t.Context(), line); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %s", line, got, err, want)
		}
	}
	wider := c
	wider.ActiveThreadPercentage, wider.PinnedMemoryBytes = 0, 700*mebibyte
	s.configure(wider)
	s.await(wider)
	different := wider
	different.PinnedMemoryBytes, different.DeviceMemoryBytes = 0, "734003200,2147483648"
	s.configure(different)
	s.await(different)
	if got, err := d.command(t.Context(), "get_default_device_pinned_mem_limit 1"); err != nil || got != "2G" {
		t.Errorf("the limit of the second device: %q, %v, want 2G", got, err)
	}
	if _, err := d.command(t.Context(), "set_default_device_pinned_mem_limit "+catalog.UUID("node1", 1)+" 1G"); err != nil {
		t.Error(err)
	}
	if got, err := d.command(t.Context(), "get_default_device_pinned_mem_limit 1"); err != nil || got != "2G" {
		t.Errorf("the limit of the second device, after one by its UUID: %q, %v, want 2G", got, err)
	}
	none := limit{what: "device_pinned_mem_limit", device: "2", value: "1024M", shown: "1G"}
	if err := d.setLimit(t.Context(), none, ""); err == nil || !strings.Contains(err.Error(), `has "" instead of "1G"`) {
		t.Errorf("a device that the daemon does not serve: %v", err)
	}
	if err := s.signal(syscall.SIGTERM); err != nil || s.held(aliveByte) {
		t.Errorf("the supervisor: %v", err)
	}
	if log := s.log.String(); !strings.Contains(log, "Cmd:quit") {
		t.Errorf("the daemon received no quit:\n%s", log)
	}
}
