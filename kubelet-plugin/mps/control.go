package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	commands commands
	// protocol is the version of MPS.
	protocol int
	pipe     string
	env      []string
	timeouts timeouts
	cmd      *exec.Cmd
	output   *tail
	// execute runs the program and returns its output; nil means execution of the program.
	execute func(ctx context.Context, input string, arguments []string) (string, error)
	// done is closed when the daemon has ended; err is valid from then on.
	done chan struct{}
	err  error
}

// multiuserOptions let one server serve clients of several users; the program has one of them. Without it, clients of a second user wait until all
// clients of the first user have ended. The GPU is allocated to the daemon's claims, whose containers may run as different users. A program without the
// option ends with an error about something else (535 and 550).
var multiuserOptions = []string{"--multiuser-server", "--multiuser"}

// protocolVariable selects the version of MPS for the daemon and its command line. Drivers before 615 ignore it.
const protocolVariable = "CUDA_MPS_PROTOCOL_VERSION"

// The versions of MPS.
const (
	version2 = 2
	version3 = 3
)

// commands are what a control daemon of one version of MPS understands.
type commands interface {
	// respond returns an error unless the daemon accepts commands.
	respond(ctx context.Context) error
	// begin puts the configuration into effect on a daemon that has just started, starts its server, and then lets clients connect.
	begin(ctx context.Context, c configuration) error
	// reaches reports whether change can change a serving daemon from one configuration to the other. Both are valid.
	reaches(was, c configuration) bool
	// change puts the limits of c into effect on a serving daemon with those of was. After an error it can be repeated.
	change(ctx context.Context, was, c configuration) error
	// stop makes the daemon end.
	stop(ctx context.Context) error
}

// start starts a control daemon in the folder, of the protocol or, if that is 0, of the newest version that the program and the configuration have. The
// daemon inherits the lock and ends with this process.
func start(ctx context.Context, program Program, folder string, c configuration, protocol int, lock *os.File, allowed timeouts) (*control, error) {
	pipe, logs, libraries := filepath.Join(folder, pipeName), filepath.Join(folder, logName), filepath.Join(folder, libName)
	if err := program.link(libraries); err != nil {
		return nil, fmt.Errorf("link the driver's libraries: %w", err)
	}
	if err := clearFolder(pipe); err != nil {
		return nil, err
	}
	if err := os.Chmod(pipe, closedMode); err != nil { // until clients are admitted
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
	help, err := d.choose(ctx, protocol, c)
	if err != nil {
		return nil, err
	}
	d.cmd = exec.Command(program.Path, "-f")
	if i := slices.IndexFunc(multiuserOptions, func(option string) bool { return strings.Contains(help, option) }); i >= 0 {
		d.cmd.Args = append(d.cmd.Args, multiuserOptions[i])
	} else {
		klog.FromContext(ctx).Info("The driver's daemon serves one user at a time: containers of another user wait until those of the first have ended")
	}
	d.cmd.Env = d.env
	if d.protocol == version2 {
		d.cmd.Env = append(slices.Clone(d.env), c.environment()...)
	}
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

// choose determines the version of MPS and returns the help of the program. The program of driver 615 has both versions; its help describes that of the
// option.
func (d *control) choose(ctx context.Context, protocol int, c configuration) (help string, err error) {
	if protocol == version3 || protocol == 0 && len(c.Namespaces) > 0 {
		help, err = d.call(ctx, "", "-p", strconv.Itoa(version3), "-h")
		if err == nil && strings.Contains(help, "namespace") {
			protocol = version3
		} else if protocol == version3 {
			return "", errors.Join(fmt.Errorf("clients use MPS version 3, which the driver's program no longer has%s", formatOutput(help)), err)
		}
	}
	d.protocol = max(protocol, version2)
	d.env = append(d.env, protocolVariable+"="+strconv.Itoa(d.protocol))
	if d.protocol == version3 {
		d.commands = named{d}
		return help, nil
	}
	d.commands = legacy{d}
	return d.call(ctx, "", "-h")
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

// call runs the program with the arguments and the input, and returns its output.
func (d *control) call(ctx context.Context, input string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.command)
	defer cancel()
	execute := d.execute
	if execute == nil {
		execute = d.runProgram
	}
	output, err := execute(ctx, input, arguments)
	answer := strings.TrimSpace(output)
	if err != nil {
		return "", fmt.Errorf("%s: %w%s", strings.TrimSpace(input+strings.Join(arguments, " ")), err, formatOutput(answer))
	}
	return answer, nil
}

func (d *control) runProgram(ctx context.Context, input string, arguments []string) (string, error) {
	cmd := exec.CommandContext(ctx, d.program, arguments...)
	cmd.Env = d.env
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = hostcommand.OutputDelay
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// ready waits until the daemon responds, at most timeouts.start.
func (d *control) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.start)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, configPeriod) {
		err := d.commands.respond(ctx)
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
		failure := d.commands.stop(ctx)
		select {
		case <-d.done:
		case <-ctx.Done():
			errs = append(errs, failure, fmt.Errorf("the daemon does not end within %v: killing it", d.timeouts.quit), d.cmd.Process.Kill())
			<-d.done
		}
	}
	return errors.Join(append(errs, killAndReapChildren())...)
}

// clearFolder creates the folder of the sockets with mode 0755 if it is missing, and removes the files of an earlier daemon. The folder itself and those of
// claims are kept, because containers have them mounted.
func clearFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return err
	}
	sockets, err := filepath.Glob(filepath.Join(folder, claimsName, "*", "*"))
	if err != nil {
		return err
	}
	for _, path := range append(files, sockets...) {
		if path == filepath.Join(folder, claimsName) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
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
