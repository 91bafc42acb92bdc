package prepare

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Daemon is an MPS control daemon as it must run.
type Daemon struct {
	// Name is unique on the node and a DNS label.
	Name string
	// GPU is the name of the GPU that a shared daemon serves, ClaimUID the claim of a private one; the
	// other is empty.
	GPU, ClaimUID string
	// Visible are the devices that the daemon serves: UUIDs of GPUs, or of one MIG device, separated by commas (CUDA_VISIBLE_DEVICES).
	Visible string
	// ActiveThreadPercentage bounds every client's part of the multiprocessors, 1 to 100; 0 is no limit.
	ActiveThreadPercentage int
	// PinnedMemoryBytes bounds every client's memory on each device; 0 is no limit.
	PinnedMemoryBytes int64
	// DeviceMemoryBytes bounds every client's memory where the limits of the devices differ: one number per device of Visible, in its order, separated by
	// commas; 0 is no limit. PinnedMemoryBytes is 0 then. It is empty if all devices have one limit.
	DeviceMemoryBytes string
	// Namespaces are the limits of each claim on the daemon of a shared GPU, by name in ascending order. A daemon of MPS version 3 applies them instead of
	// the limits above, which are the largest of all claims.
	Namespaces []Namespace
}

// Namespace has the limits of one claim's clients on a daemon. A claim with several shares of a GPU has their sum.
type Namespace struct {
	// Name is unique on the daemon: lowercase letters, digits and underscores, at most 64 (NVIDIA Multi-Process Service, MPS v3 Interface).
	Name string `json:"name"`
	// ActiveThreadPercentage is at most 100. PinnedMemoryBytes bounds each client. 0 is no limit.
	ActiveThreadPercentage int   `json:"activeThreadPercentage,omitempty"`
	PinnedMemoryBytes      int64 `json:"pinnedMemoryBytes,omitempty"`
}

// DaemonFolders are the host folders through which clients reach a daemon.
type DaemonFolders struct {
	// Pipe holds the daemon's sockets, Shm the memory that it shares with its clients.
	Pipe, Shm string
	// Namespaces holds a folder with the socket of each namespace; empty if the daemon has none and all clients use Pipe.
	Namespaces string
}

// of returns the folders for the containers of the claim, which reach only its own namespace.
func (f DaemonFolders) of(claimUID string) DaemonFolders {
	if f.Namespaces == "" {
		return f
	}
	return DaemonFolders{Pipe: filepath.Join(f.Namespaces, namespaceName(claimUID)), Shm: f.Shm}
}

// Daemons runs MPS control daemons. Implementations are safe for concurrent use by several processes;
// calls for one daemon are serialized by the caller through the lock of its GPU or claim. A daemon
// outlives the agent.
type Daemons interface {
	// Ensure starts the daemon, or updates a running one, and returns when clients can connect under these limits.
	Ensure(ctx context.Context, d Daemon) (DaemonFolders, error)
	// Narrow changes the configuration of the daemon to one without a released claim, and does not wait until it is in effect.
	Narrow(ctx context.Context, d Daemon) error
	// Release stops the daemon and returns when none of its processes exists. A missing one is no error.
	Release(ctx context.Context, name string) error
	// List returns the daemons of the node with Name, GPU and ClaimUID.
	List(ctx context.Context) ([]Daemon, error)
	// Processes returns the ids of the daemon's own processes, the control process and its servers. Clients are not included. A missing daemon has
	// none.
	Processes(name string) ([]int, error)
}

// DaemonFailed is the error of an MPS daemon that does not serve as a claim needs it. It wraps the cause.
type DaemonFailed struct {
	Name  string
	Cause error
}

// Error names the daemon and the cause.
func (e *DaemonFailed) Error() string { return fmt.Sprintf("run MPS daemon %s: %v", e.Name, e.Cause) }

// Unwrap returns the cause.
func (e *DaemonFailed) Unwrap() error { return e.Cause }

// noDaemons is the Daemons of a node that cannot run MPS daemons.
type noDaemons struct{}

func (noDaemons) Ensure(context.Context, Daemon) (DaemonFolders, error) {
	return DaemonFolders{}, fmt.Errorf("this node does not support MPS daemons: %w", gpu.ErrUnsupported)
}
func (noDaemons) Narrow(context.Context, Daemon) error   { return nil }
func (noDaemons) Release(context.Context, string) error  { return nil }
func (noDaemons) List(context.Context) ([]Daemon, error) { return nil, nil }
func (noDaemons) Processes(string) ([]int, error)        { return nil, nil }

// exclusive reports whether only an MPS daemon may use the device's GPU. A MIG device has no compute
// mode.
func (w Wanted) exclusive() bool {
	return !w.Admin && (w.Use.Shape == gpu.MPS || w.Use.Shape == gpu.Whole && w.Settings.MPS.Private)
}

// limits returns the limits of a client of the device's daemon; 0 is no limit.
func (w Wanted) limits() (activeThreadPercentage int, pinnedMemoryBytes int64) {
	if w.Use.Shape == gpu.MPS {
		// The limit of the control group is the lower one until it is raised.
		return w.Use.Share.Compute, max(int64(w.Use.Share.MemoryBytes), w.Settings.MemoryLimitBytes)
	}
	return w.Settings.MPS.ActiveThreadPercentage, w.Settings.MPS.PinnedMemoryBytes
}

// exclusive reports whether the claim's daemon must have the GPU to itself.
func (r Record) exclusive(gpuName string) bool {
	return slices.ContainsFunc(r.on(gpuName), Wanted.exclusive)
}

// daemonOf returns the name of the daemon that serves the device at the position; empty without one.
// GPUs that are shared through MPS have one daemon each. A claim's own daemon serves all its whole GPUs,
// since a process uses one daemon only, unless their thread percentages differ, of which a daemon has
// one; a daemon of MIG serves one device, as MPS demands.
func (r Record) daemonOf(i int) string {
	w := r.Wanted[i]
	switch {
	case w.Admin:
		return ""
	case w.Use.Shape == gpu.MPS:
		return "mps-" + w.Use.GPU
	case !w.Settings.MPS.Private:
		return ""
	case w.Use.Shape == gpu.Whole:
		i = slices.IndexFunc(r.Wanted, func(first Wanted) bool {
			return first.Use.Shape == gpu.Whole && !first.Admin && first.sharesDaemon(w)
		})
	}
	return "mps-" + r.UID + "-" + strconv.Itoa(i)
}

// sharesDaemon reports whether one daemon of a claim serves both whole GPUs. Their memory limits may differ, because a daemon has them by device.
func (w Wanted) sharesDaemon(other Wanted) bool {
	a, b := w.Settings.MPS, other.Settings.MPS
	if !w.DaemonByLimit {
		a.PinnedMemoryBytes, b.PinnedMemoryBytes = 0, 0
	}
	return a == b
}

// daemons returns the names of the daemons that serve the claim, in the order of its devices.
func (r Record) daemons() []string {
	var names []string
	for i := range r.Wanted {
		if name := r.daemonOf(i); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// gpuOf returns the first GPU that the daemon serves for the claim; empty if it serves none.
func (r Record) gpuOf(daemon string) string {
	for i, w := range r.Wanted {
		if r.daemonOf(i) == daemon {
			return w.Use.GPU
		}
	}
	return ""
}

// uses reports whether the daemon serves a device of the claim.
func (r Record) uses(daemon string) bool { return r.gpuOf(daemon) != "" }

// servesActiveClaim reports whether the daemon serves a claim that is not being unprepared.
func servesActiveClaim(records []Record, name string) bool {
	return slices.ContainsFunc(activeRecords(records), func(r Record) bool { return r.uses(name) })
}

// daemon describes the daemon of the name as the claims of the records need it. Its limits are the largest of them; a claim without a limit removes it for
// all, and the other claims' limits are those of their namespaces, or only in the environment of their containers (MPS version 2).
func (x *execution) daemon(name string, records []Record) Daemon {
	d := Daemon{Name: name}
	memory := map[string]int64{} // by UUID
	first := true
	for _, r := range records {
		for i, w := range r.Wanted {
			if r.daemonOf(i) != name {
				continue
			}
			percentage, bytes := w.limits()
			uuid := x.uuid(w)
			if first {
				d.ActiveThreadPercentage, first = percentage, false
			}
			if _, limited := memory[uuid]; !limited {
				memory[uuid] = bytes
			}
			d.ActiveThreadPercentage = looserLimit(d.ActiveThreadPercentage, percentage)
			memory[uuid] = looserLimit(memory[uuid], bytes)
			if w.Use.Shape == gpu.MPS {
				d.GPU = w.Use.GPU
			} else {
				d.ClaimUID = r.UID
			}
		}
		if d.GPU != "" && r.uses(name) {
			d.Namespaces = append(d.Namespaces, r.namespace(name))
		}
	}
	slices.SortFunc(d.Namespaces, func(a, b Namespace) int { return strings.Compare(a.Name, b.Name) })
	visible := slices.Sorted(maps.Keys(memory))
	d.Visible = strings.Join(visible, ",")
	d.limitMemory(visible, memory)
	return d
}

// namespace returns the claim's limits on the daemon of a shared GPU.
func (r Record) namespace(daemon string) Namespace {
	n, first := Namespace{Name: namespaceName(r.UID)}, true
	for i, w := range r.Wanted {
		if r.daemonOf(i) != daemon {
			continue
		}
		percentage, bytes := w.limits()
		if first {
			n.ActiveThreadPercentage, n.PinnedMemoryBytes, first = percentage, bytes, false
			continue
		}
		n.ActiveThreadPercentage = min(sumOfLimits(n.ActiveThreadPercentage, percentage), 100)
		n.PinnedMemoryBytes = sumOfLimits(n.PinnedMemoryBytes, bytes)
	}
	return n
}

// namespaceName returns the name of a claim's namespace.
func namespaceName(claimUID string) string {
	return "c_" + strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(claimUID))
}

// uuid returns the UUID of a device that a daemon serves.
func (x *execution) uuid(w Wanted) string {
	if w.Use.Shape == gpu.MIG {
		return x.live[place{w.Use.GPU, w.Use.Placement}].UUID
	}
	return x.view.on(w.Use.GPU).UUID
}

// limitMemory sets the memory limits of the visible devices, by UUID.
func (d *Daemon) limitMemory(visible []string, memory map[string]int64) {
	var texts []string
	for _, uuid := range visible {
		texts = append(texts, strconv.FormatInt(memory[uuid], 10))
	}
	if len(slices.Compact(slices.Clone(texts))) > 1 {
		d.DeviceMemoryBytes = strings.Join(texts, ",")
		return
	}
	for _, bytes := range memory {
		d.PinnedMemoryBytes = bytes
	}
}

// sumOfLimits adds limits; 0 is no limit.
func sumOfLimits[T int | int64](a, b T) T {
	if a == 0 || b == 0 {
		return 0
	}
	return a + b
}

// looserLimit returns the larger limit; 0 is no limit.
func looserLimit[T int | int64](a, b T) T {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}
