package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	hostcommand "github.com/tessera-gpu/tessera/internal/host/command"
)

// Program is the driver's nvidia-cuda-mps-control as this process can run it. Paths are those of this process's mount
// namespace.
//
// The program is not started in the driver's root: that root may lack libc or /dev, and the daemon's folders would have
// to be mounted into it. It does not use the root's library folders either, which may have another libc than the one
// that starts it. It gets a folder with only the driver's own libraries, and runs on every glibc on which the driver's
// library runs.
type Program struct {
	// Path is the path of the program. nvidia-cuda-mps-server is in the same folder, or in the sbin of the same prefix (Debian).
	Path string
	// Libraries are the driver's shared libraries.
	Libraries []Library
}

// Library is a shared library of the driver, or another name of one.
type Library struct {
	// Name is the file's name. Target is the path of the file or the name of another library.
	Name, Target string
}

// link replaces the folder with one that has links to the libraries.
func (p Program) link(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	for _, l := range p.Libraries {
		if err := os.Symlink(l.Target, filepath.Join(folder, l.Name)); err != nil {
			return err
		}
	}
	return nil
}

// Timeouts of the control daemon.
const (
	// startTimeout bounds the wait for its first response, commandTimeout each command, and quitTimeout its end after
	// the quit command. The grace period of the pod is 30 s.
	startTimeout   = 30 * time.Second
	commandTimeout = 10 * time.Second
	quitTimeout    = 10 * time.Second
	// firstPause is the first interval between attempts to reach a daemon that starts; it doubles.
	firstPause = 20 * time.Millisecond
)

// timeouts are the timeouts of a control daemon: startTimeout, commandTimeout and quitTimeout, except in tests.
type timeouts struct{ start, command, quit time.Duration }

// control is a control daemon that has been started.
type control struct {
	program  string
	pipe     string
	env      []string
	timeouts timeouts
	cmd      *exec.Cmd
	output   *tail
	// done is closed when the daemon has ended; err is valid from then on.
	done chan struct{}
	err  error
}

// multiuserOption lets one server serve clients of several users. Without it, clients of a second user wait until all
// clients of the first user have ended. The GPU is allocated to the daemon's claims, whose containers may run as
// different users. A program without the option ends with an error about something else (535 and 550).
const multiuserOption = "--multiuser-server"

// start starts a control daemon in the folder. The daemon inherits the lock and ends with this process.
func start(ctx context.Context, program Program, folder string, c configuration, lock *os.File, allowed timeouts) (*control, error) {
	pipe, logs, libraries := filepath.Join(folder, pipeName), filepath.Join(folder, logName), filepath.Join(folder, libName)
	if err := program.link(libraries); err != nil {
		return nil, fmt.Errorf("link the driver's libraries: %w", err)
	}
	if err := clearFolder(pipe); err != nil {
		return nil, err
	}
	if err := os.Chmod(pipe, closedMode); err != nil { // until admit
		return nil, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	programs := filepath.Dir(program.Path)
	d := &control{program: program.Path, pipe: pipe, timeouts: allowed, output: &tail{}, done: make(chan struct{})}
	d.env = []string{
		"PATH=" + programs + ":" + filepath.Join(programs, "../sbin") + ":/usr/sbin:/usr/bin:/sbin:/bin",
		"LD_LIBRARY_PATH=" + libraries,
		"CUDA_MPS_PIPE_DIRECTORY=" + pipe,
		"CUDA_MPS_LOG_DIRECTORY=" + logs,
		"CUDA_VISIBLE_DEVICES=" + c.Visible,
	}
	help, err := d.call(ctx, "", "-h")
	if err != nil {
		return nil, err
	}
	d.cmd = exec.Command(program.Path, "-f")
	if strings.Contains(help, multiuserOption) {
		d.cmd.Args = append(d.cmd.Args, multiuserOption)
	} else {
		klog.FromContext(ctx).Info("The driver's daemon serves one user at a time: containers of another user wait until those of the first have ended")
	}
	d.cmd.Env = append(d.env, c.environment()...)
	d.cmd.Stdout, d.cmd.Stderr = d.output, d.output
	d.cmd.ExtraFiles = []*os.File{lock}
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	d.cmd.WaitDelay = time.Second
	started := make(chan error, 1)
	go d.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program.Path, err)
	}
	return d, nil
}

// run starts the daemon and waits for it on one thread: the kernel sends Pdeathsig when the thread that started the
// daemon ends (prctl(2), PR_SET_PDEATHSIG).
func (d *control) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := d.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	d.err = d.cmd.Wait()
	close(d.done)
}

// Modes of the folder of the sockets. Memory limits cannot be set before a daemon accepts connections: the variable CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in its
// environment has no effect (measured with driver 580). Until they are set, only root can connect.
const (
	closedMode = 0o700
	openMode   = 0o755
)

// admit lets clients connect.
func (d *control) admit() error { return os.Chmod(d.pipe, openMode) }

// environment returns the limit that the daemon reads from its environment when it starts.
func (c configuration) environment() []string {
	var env []string
	if c.ActiveThreadPercentage > 0 {
		env = append(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="+strconv.Itoa(c.ActiveThreadPercentage))
	}
	return env
}

// command executes one line in the daemon and returns its output.
func (d *control) command(ctx context.Context, line string) (string, error) {
	return d.call(ctx, line+"\n")
}

// call runs the program with the arguments and the input, and returns its output.
func (d *control) call(ctx context.Context, input string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.command)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.program, arguments...)
	cmd.Env = d.env
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = hostcommand.OutputDelay
	output, err := cmd.CombinedOutput()
	answer := strings.TrimSpace(string(output))
	if err != nil {
		return "", fmt.Errorf("%s: %w%s", strings.TrimSpace(input+strings.Join(arguments, " ")), err, formatOutput(answer))
	}
	return answer, nil
}

// ready waits until the daemon responds, at most timeouts.start.
func (d *control) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.start)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, configPeriod) {
		_, err := d.servers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-d.done:
			return d.exitError()
		case <-ctx.Done():
			return fmt.Errorf("the daemon does not respond: %w", err)
		case <-time.After(pause):
		}
	}
}

// startServer starts the daemon's server before any client connects. In exclusive-process mode the first process on the
// GPU excludes all others, so the server must precede any program that bypasses the daemon. With multiuserOption the
// single server runs as root.
func (d *control) startServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.start)
	defer cancel()
	refusal, err := d.command(ctx, "start_server -uid 0")
	if err != nil {
		return err
	}
	for pause := firstPause; ; pause = min(2*pause, configPeriod) {
		err := d.active(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errNoServer) && refusal != "":
			return fmt.Errorf("check whether another program uses the device: %w%s", err, formatOutput(refusal))
		}
		select {
		case <-d.done:
			return d.exitError()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// errNoServer means that the daemon has no server.
var errNoServer = errors.New("the daemon starts no server")

// active returns nil if a server has the devices and accepts clients. Driver 535 has no command for that: a server that
// is listed is taken for active, and clients of one that still starts wait.
func (d *control) active(ctx context.Context) error {
	servers, err := d.servers(ctx)
	if err != nil {
		return err
	}
	if len(servers) == 0 {
		return errNoServer
	}
	status, err := d.command(ctx, "get_server_status "+servers[0])
	unknown := strings.HasPrefix(status, "Unknown command")
	if err == nil && !unknown && !strings.EqualFold(status, "active") {
		err = fmt.Errorf("the daemon's server %s is not active%s", servers[0], formatOutput(status))
	}
	return err
}

// servers returns the process IDs of the daemon's servers.
func (d *control) servers(ctx context.Context) ([]string, error) {
	answer, err := d.command(ctx, "get_server_list")
	if err != nil {
		return nil, err
	}
	pids := strings.Fields(answer)
	for _, pid := range pids {
		if _, err := strconv.Atoi(pid); err != nil {
			return nil, fmt.Errorf("get_server_list: not a list of process IDs%s", formatOutput(answer))
		}
	}
	return pids, nil
}

// exitError returns the error of a daemon that ended without a quit command.
func (d *control) exitError() error {
	output := formatOutput(d.output.last())
	if d.err != nil {
		return fmt.Errorf("%s ended: %w%s", d.program, d.err, output)
	}
	return fmt.Errorf("%s ended unexpectedly%s", d.program, output)
}

// quit ends the daemon and its servers, and kills them after timeouts.quit.
func (d *control) quit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.timeouts.quit)
	defer cancel()
	var errs []error
	select {
	case <-d.done:
	default:
		// The daemon waits for its clients; the timeout bounds that wait. The command can fail although the daemon ends: its connection ends with it.
		_, failure := d.command(ctx, "quit")
		select {
		case <-d.done:
		case <-ctx.Done():
			errs = append(errs, failure, fmt.Errorf("the daemon does not end within %v: killing it", d.timeouts.quit), d.cmd.Process.Kill())
			<-d.done
		}
	}
	return errors.Join(append(errs, killAndReapChildren())...)
}

// clearFolder creates the folder with mode 0755 if it is missing, and removes the files of an earlier daemon. The folder
// itself is kept, because containers have it mounted.
func clearFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func formatOutput(output string) string {
	if output = strings.Join(strings.Fields(output), " "); output == "" {
		return ""
	}
	return ": " + output
}
