// Package machine runs pods of driver DaemonSets on a simulated machine: containers from folders, with the mounts, variables, probes and hooks of a pod
// spec, in private mount and PID namespaces. The kernel, package repositories and NVIDIA's programs are replaced by package recorder; nothing of the
// machine that the test runs on is changed. It requires root.
package machine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Machine is a running simulated machine.
type Machine struct {
	// folder is its folder: root is its file system and layers has the writable layers of its containers.
	folder, recorder string
	process          *exec.Cmd
	stdin            io.Closer
	layers           int
}

// Spec describes a machine.
type Spec struct {
	// OS is its os-release(5), Kernel the release of its kernel.
	OS, Kernel string
	// Files are further files by path. A path that ends with a slash is a folder.
	Files map[string]string
}

// Start starts a machine in an empty folder. Recorder is the program of package recorder.
func Start(folder, recorder string, spec Spec) (*Machine, error) {
	m := &Machine{folder: folder, recorder: recorder}
	m.process = exec.Command(recorder, "node", folder) //nolint:noctx // Stop ends it
	m.process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL}
	m.process.Stderr = os.Stderr
	stdin, err := m.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	m.stdin = stdin
	stdout, err := m.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.process.Start(); err != nil {
		return nil, fmt.Errorf("start the machine: %w", err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "up\n" {
		return nil, errors.Join(fmt.Errorf("start the machine: %q %w", line, err), m.Stop())
	}
	files := map[string]string{
		"etc/os-release": spec.OS, "proc/sys/kernel/osrelease": spec.Kernel + "\n", "proc/modules": "", "proc/driver/": "", "proc/sys/kernel/random/boot_id": "boot\n",
		"sys/module/firmware_class/parameters/path": "\n", "sys/devices/system/memory/auto_online_blocks": "online\n", "sys/class/": "", "sys/fs/cgroup/": "",
		"sys/bus/pci/devices/0000:3b:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:3b:00.0/class": "0x030200\n",
		"sys/bus/pci/devices/0000:3b:00.0/device": "0x2330\n", "var/log/": "", "var/lib/kubelet/": "", "run/": "", "dev/log": "", "usr/": "",
		"run/kernel/postinst.d/": "",
	}
	for path, text := range spec.Files {
		files[path] = text
	}
	for path, text := range files {
		if err := m.Write(path, text); err != nil {
			return nil, errors.Join(err, m.Stop())
		}
	}
	if err := m.Settle(); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// Stop ends all processes of the machine.
func (m *Machine) Stop() error {
	err := m.process.Process.Kill()
	var exit *exec.ExitError
	if waited := m.process.Wait(); !errors.As(waited, &exit) {
		err = errors.Join(err, waited)
	}
	return errors.Join(err, ignoreClosed(m.stdin.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// path returns the path under which this process sees a file of the machine.
func (m *Machine) path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(m.process.Process.Pid), "root", path)
}

// Write writes a file of the machine, or creates a folder if the path ends with a slash.
func (m *Machine) Write(path, text string) error {
	at := m.path(path)
	if strings.HasSuffix(path, "/") {
		return os.MkdirAll(at, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, []byte(text), 0o644)
}

// Read returns the content of a file of the machine without surrounding space, and "" if it does not exist.
func (m *Machine) Read(path string) string {
	text, err := os.ReadFile(m.path(path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Exists reports whether a path of the machine exists.
func (m *Machine) Exists(path string) bool {
	// A link of a container's root is relative to that root.
	_, err := os.Lstat(m.path(path))
	return err == nil
}

// Remove removes a path of the machine.
func (m *Machine) Remove(path string) error { return os.RemoveAll(m.path(path)) }

// Modules returns the names of the loaded modules that can be unloaded, sorted.
func (m *Machine) Modules() []string {
	var names []string
	for line := range strings.Lines(m.Read("proc/modules")) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return names
}

// Use makes a process of the machine use a module until the returned function is called.
func (m *Machine) Use(module string) (end func() error, err error) {
	c := m.enter("use", module)
	stdout, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	root, err := m.open(c)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // opened for its descriptor
	if err := c.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("use %s: %q %w", module, line, err)
	}
	return func() error { return errors.Join(m.terminate(c.Process.Pid), c.Wait()) }, nil
}

// MountSELinux mounts a file system with the source selinuxfs, as hosts with SELinux show it in the mount table.
func (m *Machine) MountSELinux() error {
	if text, err := m.enter("selinux", m.folder).CombinedOutput(); err != nil {
		return fmt.Errorf("mount selinuxfs: %w: %s", err, text)
	}
	return m.Write("sys/fs/selinux/enforce", "1")
}

// Settle makes the kernel count the users of its modules again, some of which were killed.
func (m *Machine) Settle() error {
	c := m.enter("settle")
	root, err := m.open(c)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // opened for its descriptor
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("count the users of modules: %w: %s", err, text)
	}
	return nil
}

// enter returns a command that runs the recorder in the machine's namespaces.
func (m *Machine) enter(args ...string) *exec.Cmd {
	line := append([]string{"--target", strconv.Itoa(m.process.Process.Pid), "--mount", "--pid", "--", m.recorder}, args...)
	return exec.Command("nsenter", line...) //nolint:noctx // the machine ends it
}

// descriptor is that of the machine's root in every process of a container; see package recorder.
const descriptor = 200

// open opens the machine's root for a command, at the descriptor.
func (m *Machine) open(c *exec.Cmd) (*os.File, error) {
	root, err := os.Open(m.path("/"))
	if err != nil {
		return nil, err
	}
	c.ExtraFiles = make([]*os.File, descriptor-2)
	c.ExtraFiles[descriptor-3] = root
	return root, nil
}

// terminate sends SIGTERM to the children of a process.
func (m *Machine) terminate(pid int) error {
	for _, child := range children(pid) {
		if err := syscall.Kill(child, syscall.SIGTERM); err != nil {
			return err
		}
	}
	return nil
}

// children returns the children of a process.
func children(parent int) []int {
	var found []int
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && len(f) > 1 && f[1] == strconv.Itoa(parent) {
			found = append(found, pid)
		}
	}
	return found
}

// Call is a recorded call of a program or a changed file.
type Call struct {
	Container string   `json:"container"`
	Program   string   `json:"program"`
	Args      []string `json:"args"`
	At        string   `json:"at"`
}

// Calls returns the recorded calls in order.
func (m *Machine) Calls() ([]Call, error) {
	var calls []Call
	for line := range strings.Lines(m.Read(".log")) {
		var c Call
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, fmt.Errorf("read the log: %q: %w", line, err)
		}
		calls = append(calls, c)
	}
	return calls, nil
}
