package mps

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The files and folders of a daemon's folder.
const (
	configName = "config.json"
	stateName  = "state.json"
	lockName   = "lock"
	pipeName   = "pipe"
	logName    = "log"
	libName    = "lib"
)

// mebibyte is the unit of memory limits: the daemon accepts whole MiB, written M.
const mebibyte = 1 << 20

// configuration is the content of config.json. Agent and supervisor may have different versions: a supervisor ignores
// unknown fields, and its state then never reports them as in effect.
type configuration struct {
	Name                   string `json:"name"`
	GPU                    string `json:"gpu,omitempty"`
	ClaimUID               string `json:"claimUID,omitempty"`
	Visible                string `json:"visible"`
	ActiveThreadPercentage int    `json:"activeThreadPercentage,omitempty"`
	PinnedMemoryBytes      int64  `json:"pinnedMemoryBytes,omitempty"`
	DeviceMemoryBytes      string `json:"deviceMemoryBytes,omitempty"`

	Namespaces []prepare.Namespace `json:"namespaces,omitempty"`
}

// equals reports whether both are the same for a daemon of the protocol. Only version 3 has namespaces.
func (c configuration) equals(other configuration, protocol int) bool {
	if protocol != version3 {
		c.Namespaces, other.Namespaces = nil, nil
	}
	return reflect.DeepEqual(c, other)
}

// validate returns an error for a configuration that no daemon can run.
func (c configuration) validate() error {
	var errs []error
	if c.Name == "" || c.Name != filepath.Base(c.Name) || strings.HasPrefix(c.Name, ".") {
		errs = append(errs, fmt.Errorf("name %q: must be a DNS label", c.Name))
	}
	if c.Visible == "" {
		errs = append(errs, errors.New("no device to serve"))
	}
	if c.ActiveThreadPercentage < 0 || c.ActiveThreadPercentage > 100 {
		errs = append(errs, fmt.Errorf("active thread percentage %d: must be 1 to 100, or 0 for no limit", c.ActiveThreadPercentage))
	}
	return errors.Join(append(append(errs, c.validateMemory()...), c.validateNamespaces()...)...)
}

// namespaceNames are the names that a daemon accepts.
var namespaceNames = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// validateNamespaces returns the errors of the namespaces.
func (c configuration) validateNamespaces() []error {
	var errs []error
	for _, n := range c.Namespaces {
		if !namespaceNames.MatchString(n.Name) || n.Name == defaultNamespace {
			errs = append(errs, fmt.Errorf("namespace %q: must have 1 to 64 lowercase letters, digits and underscores, and not be %s", n.Name, defaultNamespace))
		}
		if n.ActiveThreadPercentage < 0 || n.ActiveThreadPercentage > 100 || n.PinnedMemoryBytes < 0 || n.PinnedMemoryBytes > 0 && n.PinnedMemoryBytes < mebibyte {
			errs = append(errs, fmt.Errorf("namespace %s: limits of %d%% and %d bytes: must be 1 to 100 and at least 1Mi, or 0 for no limit",
				n.Name, n.ActiveThreadPercentage, n.PinnedMemoryBytes))
		}
	}
	return errs
}

// validateMemory returns the errors of the memory limits.
func (c configuration) validateMemory() []error {
	var errs []error
	for device, bytes := range c.memory() {
		if bytes < 0 || bytes > 0 && bytes < mebibyte {
			errs = append(errs, fmt.Errorf("memory limit of device %d, %d bytes: must be at least 1Mi, or 0 for no limit", device, bytes))
		}
	}
	if got := len(c.memory()); got != c.devices() {
		errs = append(errs, fmt.Errorf("memory limits %q: must be one for each of %d devices, not %d", c.DeviceMemoryBytes, c.devices(), got))
	}
	if c.PinnedMemoryBytes != 0 && c.DeviceMemoryBytes != "" {
		errs = append(errs, fmt.Errorf("memory limits %q by device: cannot be together with one of %d bytes for all", c.DeviceMemoryBytes, c.PinnedMemoryBytes))
	}
	return errs
}

// devices returns the number of devices that the daemon serves. Its commands identify them by position.
func (c configuration) devices() int { return strings.Count(c.Visible, ",") + 1 }

// memory returns the memory limits in bytes by position of the device; 0 is no limit. A text that is not a number becomes -1, which is not valid.
func (c configuration) memory() []int64 {
	if c.DeviceMemoryBytes == "" {
		return slices.Repeat([]int64{c.PinnedMemoryBytes}, c.devices())
	}
	var limits []int64
	for text := range strings.SplitSeq(c.DeviceMemoryBytes, ",") {
		bytes, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			bytes = -1
		}
		limits = append(limits, bytes)
	}
	return limits
}

// formatMemory returns a limit in the daemon's format, rounded down, so that it never exceeds the requested limit.
func formatMemory(bytes int64) string { return fmt.Sprintf("%dM", bytes/mebibyte) }

// state is the content of state.json.
type state struct {
	// Config is the configuration in effect while Serving, else the last one that was attempted.
	Config  configuration `json:"config"`
	Serving bool          `json:"serving"`
	// Protocol is the version of MPS of the daemon; 0 is version 2, of a supervisor before version 3.
	Protocol int `json:"protocol,omitempty"`
	// Pod is the UID of the supervisor's pod.
	Pod string `json:"pod"`
	// Volumes reports that the folders of sockets and logs are volumes of that pod.
	Volumes     bool      `json:"volumes,omitempty"`
	Since       time.Time `json:"since"`
	Restarts    int       `json:"restarts"`
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
}

// State is the state of a daemon that its supervisor reports.
type State struct {
	// Name, GPU and ClaimUID identify the daemon.
	Name, GPU, ClaimUID string
	// Serving reports whether clients can connect.
	Serving bool
	// Since is when the daemon started or stopped serving.
	Since time.Time
	// Restarts counts the unrequested ends and failed starts of the daemon since its folder was created.
	Restarts int
	// LastError is the last error, at LastErrorAt: why the daemon ended, or why other limits could not be put into
	// effect. Both are zero if there was none.
	LastError   string
	LastErrorAt time.Time
}

func (p *Pods) folder(name string) string { return filepath.Join(p.Dir, name) }

// read reads a file of the folder. The error wraps fs.ErrNotExist if there is none.
func read[T configuration | state](folder, name string) (T, error) {
	var value T
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return value, fmt.Errorf("read %s: %w", filepath.Join(folder, name), err)
	}
	return value, nil
}

// write replaces a file of the folder atomically. The folder is in memory.
func write[T configuration | state](files disk.FileSystem, folder, name string, value T) error {
	path := filepath.Join(folder, name)
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil {
		err = atomicfile.Write(path, append(text, '\n'), atomicfile.Options{Mode: 0o600, Volatile: true, Files: files})
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// These conversions fail to compile if prepare.Daemon has a field that configuration lacks.
var (
	_ = configuration(prepare.Daemon{})
	_ = prepare.Daemon(configuration{})
)
