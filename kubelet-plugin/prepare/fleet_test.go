package prepare

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// fleet is the MPS daemons of a machine, as strict as they are. It is guarded by the machine's mutex.
type fleet struct {
	m       *machine
	daemons map[string]*daemon
}

// daemon is one daemon. A reboot ends its process and keeps what describes it.
type daemon struct {
	Daemon
	alive bool
}

func (f *fleet) call(call string, do func() error) error {
	f.m.mutex.Lock()
	defer f.m.mutex.Unlock()
	if err := f.m.inject(f.m.before, call); err != nil {
		return err
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return f.m.inject(f.m.after, call)
}

// Ensure implements Daemons.
func (f *fleet) Ensure(_ context.Context, d Daemon) (DaemonFolders, error) {
	folders := DaemonFolders{Pipe: "/run/" + d.Name + "/pipe", Shm: "/run/" + d.Name + "/shm"}
	if len(d.Namespaces) > 0 {
		folders.Namespaces = folders.Pipe + "/claims"
	}
	return folders, f.call("ensure "+d.Name, func() error {
		for uuid := range strings.SplitSeq(d.Visible, ",") {
			if err := f.admit(d, uuid); err != nil {
				return err
			}
		}
		f.daemons[d.Name] = &daemon{Daemon: d, alive: true}
		return nil
	})
}

// admit refuses what the daemon cannot serve, and notes requests that are never permitted.
func (f *fleet) admit(d Daemon, uuid string) error {
	for name, other := range f.daemons {
		if name != d.Name && other.alive && strings.Contains(other.Visible, uuid) {
			f.m.sin("daemon %s for %s, which %s serves", d.Name, uuid, name)
			return gpu.ErrOccupied
		}
	}
	for _, c := range f.m.gpus {
		switch {
		case slices.ContainsFunc(c.Instances, func(i gpu.Instance) bool { return i.UUID == uuid }):
			return nil
		case c.UUID == uuid && c.compute != gpu.ComputeExclusive:
			f.m.sin("daemon %s for %s, which others may use at the same time", d.Name, uuid)
			return nil
		case c.UUID == uuid && c.Mode == gpu.ModeEnabled:
			f.m.sin("daemon %s for %s, which has MIG on", d.Name, uuid)
			return gpu.ErrUnsupported
		case c.UUID == uuid:
			return nil
		}
	}
	f.m.sin("daemon %s for %q, which is not there", d.Name, uuid)
	return gpu.ErrLost
}

// Narrow implements Daemons.
func (f *fleet) Narrow(_ context.Context, d Daemon) error {
	return f.call("narrow "+d.Name, func() error {
		if there, known := f.daemons[d.Name]; known {
			there.Daemon = d
		}
		return nil
	})
}

// Release implements Daemons.
func (f *fleet) Release(_ context.Context, name string) error {
	return f.call("release "+name, func() error {
		delete(f.daemons, name)
		return nil
	})
}

// List implements Daemons.
func (f *fleet) List(context.Context) (all []Daemon, err error) {
	err = f.call("list-daemons", func() error {
		for _, name := range slices.Sorted(maps.Keys(f.daemons)) {
			d := f.daemons[name]
			all = append(all, Daemon{Name: d.Name, GPU: d.GPU, ClaimUID: d.ClaimUID})
		}
		return nil
	})
	return all, err
}

// serverPID is the process of each daemon.
const serverPID = 1000

// Processes implements Daemons.
func (f *fleet) Processes(name string) (pids []int, err error) {
	err = f.call("daemon-processes "+name, func() error {
		if d, known := f.daemons[name]; known && d.alive {
			pids = []int{serverPID}
		}
		return nil
	})
	return pids, err
}

func (f *fleet) serves(uuid string) bool {
	for _, d := range f.daemons {
		if uuid != "" && d.alive && strings.Contains(d.Visible, uuid) {
			return true
		}
	}
	return false
}

func (f *fleet) reboot() {
	for _, d := range f.daemons {
		d.alive = false
	}
}
