package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Pod is a pod on a machine. It does what kubelet and a container runtime do with a pod spec: volumes, init containers in order, containers, startup
// and liveness probes, hooks and termination. Periods and grace periods are a hundredth of those in the spec.
type Pod struct {
	machine    *Machine
	spec       corev1.PodSpec
	images     map[string]Image
	configs    map[string]map[string]string
	containers map[string]*process
	init       atomic.Value // name of the running init container
}

// Images are the images of a pod by reference.
type Images map[string]Image

// Configs are the data of ConfigMaps and Secrets, by name.
type Configs map[string]map[string]string

// process is a running or ended container.
type process struct {
	command *exec.Cmd
	pid     int
	space   string
	env     []string
	output  string // its file
	done    chan struct{}
	err     error
}

// NewPod returns a pod that is not started.
func (m *Machine) NewPod(spec corev1.PodSpec, images Images, configs Configs) *Pod {
	return &Pod{machine: m, spec: spec, images: images, configs: configs, containers: map[string]*process{}}
}

// Start runs the init containers, each to its end, and starts the containers. An error names the container and has the end of its output.
func (p *Pod) Start() error {
	for _, c := range p.spec.InitContainers {
		p.init.Store(c.Name)
		running, err := p.start(c)
		if err != nil {
			return err
		}
		<-running.done
		if running.err != nil {
			return fmt.Errorf("init container %s: %w: %s", c.Name, running.err, running.text())
		}
	}
	p.init.Store("")
	for _, c := range p.spec.Containers {
		if err := p.Restart(c.Name); err != nil {
			return err
		}
	}
	return nil
}

// Restart starts a container, after it has ended.
func (p *Pod) Restart(name string) error {
	running, err := p.start(p.container(name))
	if err != nil {
		return err
	}
	p.containers[name] = running
	return nil
}

func (p *Pod) container(name string) corev1.Container {
	i := slices.IndexFunc(p.spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	return p.spec.Containers[i]
}

// start starts one container.
func (p *Pod) start(c corev1.Container) (*process, error) {
	config, err := p.config(c)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", c.Name, err)
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(p.machine.folder, fmt.Sprintf("container-%d.json", p.machine.layers))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, err
	}
	line := []string{"container", file}
	command := p.machine.enter(line...)
	if !p.spec.HostPID {
		// Without hostPID a container has its own PID namespace.
		own := append([]string{"--target", strconv.Itoa(p.machine.process.Process.Pid), "--mount", "--pid", "--", "unshare", "--pid", "--fork", p.machine.recorder}, line...)
		command = exec.Command("nsenter", own...) //nolint:noctx // the machine ends it
	}
	// A file and not a pipe: daemons of a container keep its output open after its first process has ended.
	out, err := os.Create(file + ".log")
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the container has its own descriptor
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, err
	}
	running := &process{command: command, env: config.Env, output: out.Name(), done: make(chan struct{})}
	go func() {
		defer close(running.done)
		running.err = command.Wait()
	}()
	return running, p.firstProcess(running)
}

// firstProcess finds the first process of a container, on this host, when it is in its own mount namespace: the last of a chain of helpers with one
// child each. A container that has already ended has none.
func (p *Pod) firstProcess(running *process) error {
	depth := 1
	if !p.spec.HostPID {
		depth = 2
	}
	outside, err := namespace(p.machine.process.Process.Pid)
	if err != nil {
		return err
	}
	own, err := namespace(os.Getpid())
	if err != nil {
		return err
	}
	for {
		pid := descendant(running.command.Process.Pid, depth)
		if space, err := namespace(pid); pid != 0 && err == nil && space != outside && space != own {
			running.pid, running.space = pid, space
			return nil
		}
		select {
		case <-running.done:
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}

// descendant returns the process that is depth generations below another along the first children, or 0 if there is none.
func descendant(pid, depth int) int {
	for range depth {
		child := children(pid)
		if len(child) == 0 {
			return 0
		}
		pid = child[0]
	}
	return pid
}

// namespace returns the mount namespace of a process.
func namespace(pid int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)) }

// Wait waits until all startup probes have succeeded, as kubelet runs them. It fails when a container ends, or after the timeout; the error has the
// last probe and the end of the container's output.
func (p *Pod) Wait(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for _, c := range p.spec.Containers {
		for {
			text, err := p.Probe(c.Name, c.StartupProbe)
			if err == nil {
				break
			}
			select {
			case <-p.containers[c.Name].done:
				return fmt.Errorf("container %s ended: %w: %s", c.Name, p.containers[c.Name].err, p.Output(c.Name))
			case <-time.After(time.Until(deadline)):
				return fmt.Errorf("container %s is not ready: %w: %s\n%s", c.Name, err, text, p.Output(c.Name))
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// Output returns the end of a container's output.
func (p *Pod) Output(name string) string { return p.containers[name].text() }

// Failure returns the pod as kubelet reports it to the API server after a container has failed and is restarted with a backoff. With the policy
// FallbackToLogsOnError, the termination message of a container that has written none is the end of its log: 80 lines, and 2048 bytes.
func (p *Pod) Failure(name string) *corev1.Pod {
	const mostLines, mostBytes = 80, 2048
	text := ""
	if p.container(name).TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		lines := strings.SplitAfter(p.Output(name), "\n")
		text = strings.Join(lines[max(0, len(lines)-mostLines-1):], "")
		text = text[max(0, len(text)-mostBytes):]
	}
	return &corev1.Pod{Spec: p.spec, Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: name, RestartCount: 2,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 20s restarting failed container"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: text}},
	}}}}
}

func (r *process) text() string {
	const most = 8000
	text, err := os.ReadFile(r.output)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// Done is closed when a container has ended.
func (p *Pod) Done(name string) <-chan struct{} { return p.containers[name].done }

// Ended reports whether a container has ended.
func (p *Pod) Ended(name string) bool {
	select {
	case <-p.Done(name):
		return true
	default:
		return false
	}
}

// StartupProbe returns the startup probe of a container.
func (p *Pod) StartupProbe(name string) *corev1.Probe { return p.container(name).StartupProbe }

// Probe runs a probe of a container, and returns its output.
func (p *Pod) Probe(name string, probe *corev1.Probe) (string, error) {
	if probe == nil {
		return "", nil
	}
	return p.Exec(name, probe.Exec.Command...)
}

// Exec runs a command in a container.
func (p *Pod) Exec(name string, command ...string) (string, error) {
	running := p.containers[name]
	select {
	case <-running.done:
		return "", errors.New("the container has ended")
	default:
	}
	line := []string{"--target", strconv.Itoa(running.pid), "--mount", "--pid", "--"}
	// Without hostPID the target's PID namespace is its own as well.
	c := exec.Command("nsenter", append(line, command...)...) //nolint:noctx // the machine ends it
	c.Env = slices.DeleteFunc(slices.Clone(running.env), func(e string) bool { return strings.HasPrefix(e, "BASH_ENV=") })
	root, err := p.machine.open(c)
	if err != nil {
		return "", err
	}
	defer root.Close() //nolint:errcheck // opened for its descriptor
	text, err := c.CombinedOutput()
	return string(text), err
}

// Stop terminates the pod as kubelet does: hooks, SIGTERM, and SIGKILL after the grace period. It reports for each container whether it ended by itself.
func (p *Pod) Stop() (map[string]bool, error) {
	grace := time.Duration(*p.spec.TerminationGracePeriodSeconds) * time.Second / 20
	deadline, ended := time.Now().Add(grace), map[string]bool{}
	for _, c := range p.spec.Containers {
		if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
			continue
		}
		if text, err := p.Exec(c.Name, c.Lifecycle.PreStop.Exec.Command...); err != nil {
			return nil, fmt.Errorf("hook of %s: %w: %s", c.Name, err, text)
		}
	}
	for name := range p.containers {
		if err := ignoreEnded(p.Signal(name)); err != nil {
			return nil, fmt.Errorf("terminate %s: %w", name, err)
		}
	}
	for name, running := range p.containers {
		select {
		case <-running.done:
			ended[name] = true
		case <-time.After(time.Until(deadline)):
		}
		if err := p.Kill(name); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// Signal sends SIGTERM to the first process of a container.
func (p *Pod) Signal(name string) error { return syscall.Kill(p.containers[name].pid, syscall.SIGTERM) }

func ignoreEnded(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Kill kills all processes of a container, as the runtime does when its first process ends or is killed, and waits for their end. They are those in its
// mount namespace.
func (p *Pod) Kill(name string) error {
	running := p.containers[name]
	for pids := inNamespace(running.space); len(pids) > 0; pids = inNamespace(running.space) {
		for _, pid := range pids {
			if err := kill(pid); err != nil {
				return fmt.Errorf("kill %s: %w", name, err)
			}
		}
	}
	<-running.done
	return p.machine.Settle()
}

// kill kills a process and waits until it has ended and released its files.
func kill(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ignoreEnded(err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if err := ignoreEnded(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)); err != nil {
		return err
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1) //nolint:gosec // a descriptor
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// inNamespace returns the processes in a mount namespace.
func inNamespace(space string) []int {
	if space == "" {
		return nil
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/mnt")
	if err != nil {
		return nil
	}
	var found []int
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == space {
			pid, err := strconv.Atoi(strings.Split(link, "/")[2])
			if err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

// Names returns the names of the containers in order.
func (p *Pod) Names() []string {
	var names []string
	for _, c := range p.spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

// InitContainer returns the name of the init container that runs, and "" if none does.
func (p *Pod) InitContainer() string {
	name, ok := p.init.Load().(string)
	if !ok {
		return ""
	}
	return name
}

// Live runs the liveness probe of a container.
func (p *Pod) Live(name string) (string, error) {
	probe := p.container(name).LivenessProbe
	if probe == nil {
		return "", errors.New("the container has no liveness probe")
	}
	return p.Probe(name, probe)
}
