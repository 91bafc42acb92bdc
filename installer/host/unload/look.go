package unload

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/installer/host/survey"
)

// look reads the input of Make.
func (c Config) look() (Seen, error) {
	var seen Seen
	var err error
	if seen.Modules, err = c.Kernel.Loaded(); err != nil {
		return Seen{}, err
	}
	if seen.Version, err = survey.LoadedDriver(c.Roots); err != nil {
		return Seen{}, err
	}
	if seen.State, err = c.state(); err != nil {
		return Seen{}, err
	}
	if seen.Holders, err = Holders(c.Processes); err != nil {
		return Seen{}, err
	}
	if c.Roots.Driver == "" {
		return seen, nil
	}
	root, err := c.Roots.See(c.Roots.Driver)
	if err != nil {
		return Seen{}, err
	}
	seen.Mounts, err = c.Mounts.Below(root)
	return seen, err
}

func (c Config) state() (string, error) {
	if c.StateFile == "" {
		return "", nil
	}
	seen, err := c.Roots.See(c.StateFile)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(seen)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// nodes matches the device nodes of the driver and its companions.
var nodes = regexp.MustCompile(`(^|/)dev/(nvidia([0-9]+|ctl|-uvm|-uvm-tools|-modeset|-nvlink|-nvswitch[0-9a-z]*|-vgpu[0-9a-z]*|-fs[0-9]*)|nvidia-caps/.*|gdrdrv)$`)

// Holders returns the processes that have a device node of the driver open or mapped, by process ID. Processes that end meanwhile or cannot be
// inspected are skipped, as is this process. A procfs without processes has no holders.
func Holders(processes string) ([]Holder, error) {
	entries, err := os.ReadDir(processes)
	if err != nil {
		return nil, fmt.Errorf("list processes that use the driver: %w", err)
	}
	self, err := os.Readlink(filepath.Join(processes, "self"))
	if err != nil {
		self = ""
	}
	var holders []Holder
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || entry.Name() == self {
			continue
		}
		folder := filepath.Join(processes, entry.Name())
		if opens(folder) || mapped(folder) {
			holders = append(holders, Holder{PID: pid, Command: command(folder)})
		}
	}
	slices.SortFunc(holders, func(a, b Holder) int { return a.PID - b.PID })
	return holders, nil
}

// opens reports whether a process has a device node open.
func opens(folder string) bool {
	fds, err := os.ReadDir(filepath.Join(folder, "fd"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(fds, func(fd fs.DirEntry) bool {
		target, err := os.Readlink(filepath.Join(folder, "fd", fd.Name()))
		return err == nil && nodes.MatchString(target)
	})
}

// mapped reports whether a process has a device node mapped. A mapping outlives its descriptor.
func mapped(folder string) bool {
	text, err := os.ReadFile(filepath.Join(folder, "maps"))
	if err != nil {
		return false
	}
	for entry := range strings.Lines(string(text)) {
		if i := strings.IndexByte(entry, '/'); i >= 0 && nodes.MatchString(strings.TrimSpace(entry[i:])) {
			return true
		}
	}
	return false
}

// command returns the name of a process.
func command(folder string) string {
	text, err := os.ReadFile(filepath.Join(folder, "comm"))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}
