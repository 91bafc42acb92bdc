package mps

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
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

// mebibyte is the unit of memory limits: the daemon takes whole ones, written M.
const mebibyte = 1 << 20

// configuration is config.json. Agent and supervisor may be of different versions: a supervisor
// ignores fields that it does not know, and its state then never says that they are in effect.
type configuration struct {
	Name                   string `json:"name"`
	GPU                    string `json:"gpu,omitempty"`
	ClaimUID               string `json:"claimUID,omitempty"`
	Visible                string `json:"visible"`
	ActiveThreadPercentage int    `json:"activeThreadPercentage,omitempty"`
	PinnedMemoryBytes      int64  `json:"pinnedMemoryBytes,omitempty"`
}

// validate refuses what no daemon can do.
func (c configuration) validate() error {
	var errs []error
	if c.Name == "" || c.Name != filepath.Base(c.Name) || strings.HasPrefix(c.Name, ".") {
		errs = append(errs, fmt.Errorf("name %q: must be a DNS label", c.Name))
	}
	if c.Visible == "" {
		errs = append(errs, errors.New("no device is to be served"))
	}
	if c.ActiveThreadPercentage < 0 || c.ActiveThreadPercentage > 100 {
		errs = append(errs, fmt.Errorf("active thread percentage %d: must be 1 to 100, or 0 for no limit", c.ActiveThreadPercentage))
	}
	if c.PinnedMemoryBytes < 0 || c.PinnedMemoryBytes > 0 && c.PinnedMemoryBytes < mebibyte {
		errs = append(errs, fmt.Errorf("memory limit of %d bytes: must be at least 1Mi, or 0 for no limit", c.PinnedMemoryBytes))
	}
	return errors.Join(errs...)
}

// devices is how many devices the daemon serves. Its commands know them by their position.
func (c configuration) devices() int { return strings.Count(c.Visible, ",") + 1 }

// memory is the limit in the daemon's words, rounded down: it must never be wider than what was asked.
func (c configuration) memory() string { return fmt.Sprintf("%dM", c.PinnedMemoryBytes/mebibyte) }

// state is state.json.
type state struct {
	// Config is what is in effect while Serving, else what was last tried.
	Config  configuration `json:"config"`
	Serving bool          `json:"serving"`
	// Pod is the UID of the supervisor's pod.
	Pod         string    `json:"pod"`
	Since       time.Time `json:"since"`
	Restarts    int       `json:"restarts"`
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
}

// State is what a daemon's supervisor tells about it.
type State struct {
	// Name, GPU and ClaimUID are the daemon's.
	Name, GPU, ClaimUID string
	// Serving says whether clients can connect.
	Serving bool
	// Since is when the daemon began or ceased to serve.
	Since time.Time
	// Restarts counts how often the daemon ended without being asked to, or could not be started; it
	// starts at zero with every new folder.
	Restarts int
	// LastError is what went wrong last, at LastErrorAt: why the daemon ended, or why other limits could
	// not be put into effect. Both are zero when nothing did.
	LastError   string
	LastErrorAt time.Time
}

// read reads a file of the folder. The error wraps fs.ErrNotExist when there is none.
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

// write replaces a file of the folder as a whole.
func write[T configuration | state](folder, name string, value T) error {
	path := filepath.Join(folder, name)
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil {
		err = atomicfile.Write(path, append(text, '\n'), atomicfile.Options{Mode: 0o600})
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// The conversions fail to compile when the port gets a field that is not on disk.
var (
	_ = configuration(prepare.Daemon{})
	_ = prepare.Daemon(configuration{})
)
