package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// machine is the hardware of a node, as strict as it is: it refuses what does not fit, and it takes
// down what a caller may never do.
type machine struct {
	mutex sync.Mutex
	fleet *fleet
	gpus  map[string]*card
	// foreign are the UUIDs of instances of other programs; busy are those in use.
	foreign, busy map[string]bool
	// sins are the things that were done and must not be.
	sins []string
	// before and after are called around every call; an error fails it, without or with its effect.
	before, after func(call string) error
	// entered is called at the start of every call, outside the machine's mutex.
	entered func(call string)
}

// card is one GPU.
type card struct {
	gpu.GPU
	lost     bool
	interval string
	compute  gpu.ComputeMode
	// bound is whether vfio-pci has it.
	bound bool
	// processes are those on the card and its MIG devices; unlisted is the error of their list.
	processes []gpu.Process
	unlisted  error
	// enabled are the profiles that the card has once MIG is enabled, if they are others than before.
	enabled *gpu.Geometry
	// working is the call that changes the card now.
	working string
}

func newMachine(node gpu.Node) *machine {
	m := &machine{gpus: map[string]*card{}, foreign: map[string]bool{}, busy: map[string]bool{}}
	for _, g := range node.GPUs {
		m.gpus[g.Name()] = &card{GPU: g, interval: defaultTimeSlice}
	}
	m.fleet = &fleet{m: m, daemons: map[string]*daemon{}}
	return m
}

// call performs one call under the machine's rules. A call that changes the card must be the only one.
func (m *machine) call(name, gpuName string, changes bool, do func(c *card) error) error {
	call := name + " " + gpuName
	m.mutex.Lock()
	c, ok := m.gpus[gpuName]
	if !ok {
		m.mutex.Unlock()
		return fmt.Errorf("%s: no such GPU", call)
	}
	if changes {
		if c.working != "" {
			m.sins = append(m.sins, fmt.Sprintf("%s during %s", call, c.working))
		}
		c.working = call
	}
	entered := m.entered
	m.mutex.Unlock()
	if entered != nil {
		entered(call)
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if changes {
		c.working = ""
	}
	if err := m.inject(m.before, call); err != nil {
		return err
	}
	if c.lost {
		return fmt.Errorf("%s: %w", call, gpu.ErrLost)
	}
	if err := do(c); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return m.inject(m.after, call)
}

func (m *machine) inject(hook func(string) error, call string) error {
	if hook == nil {
		return nil
	}
	return hook(call)
}

func (m *machine) sin(format string, args ...any) {
	m.sins = append(m.sins, fmt.Sprintf(format, args...))
}

// List implements Instances.
func (m *machine) List(_ context.Context, gpuName string) (found []gpu.Instance, err error) {
	err = m.call("list", gpuName, false, func(c *card) error {
		found = slices.Clone(c.Instances)
		return nil
	})
	return found, err
}

// Geometry implements Instances.
func (m *machine) Geometry(_ context.Context, gpuName string) (profiles *gpu.Geometry, err error) {
	err = m.call("geometry", gpuName, false, func(c *card) error {
		profiles = c.Geometry
		return nil
	})
	return profiles, err
}

// Create implements Instances.
func (m *machine) Create(_ context.Context, gpuName string, p gpu.Placement) (made gpu.Instance, err error) {
	err = m.call("create", gpuName, true, func(c *card) error {
		made, err = m.create(c, p)
		return err
	})
	return made, err
}

func (m *machine) create(c *card, p gpu.Placement) (gpu.Instance, error) {
	if c.Mode != gpu.ModeEnabled {
		return gpu.Instance{}, fmt.Errorf("MIG is %v: %w", c.Mode, gpu.ErrUnsupported)
	}
	occupancy := c.Geometry.Empty()
	for _, i := range c.Instances {
		occupancy, _ = occupancy.Take(gpu.Use{Shape: gpu.MIG, Placement: i.Placement})
	}
	if _, err := occupancy.Take(gpu.Use{Shape: gpu.MIG, Placement: p}); err != nil {
		return gpu.Instance{}, err
	}
	gi := 1
	for slices.ContainsFunc(c.Instances, func(i gpu.Instance) bool { return i.GI == gi }) {
		gi++
	}
	made := gpu.Instance{GPU: c.Name(), Placement: p, GI: gi, CI: gpu.NoCompute}
	c.Instances = append(c.Instances, made)
	slices.SortFunc(c.Instances, func(a, b gpu.Instance) int { return cmp.Compare(a.Placement.Start, b.Placement.Start) })
	return made, nil
}

// Complete implements Instances.
func (m *machine) Complete(_ context.Context, i gpu.Instance) (done gpu.Instance, err error) {
	err = m.call("complete", i.GPU, true, func(c *card) error {
		done, err = m.complete(c, i)
		delete(m.foreign, done.UUID) // an earlier one of another program had the same UUID
		return err
	})
	return done, err
}

func (m *machine) complete(c *card, i gpu.Instance) (gpu.Instance, error) {
	at := slices.IndexFunc(c.Instances, func(there gpu.Instance) bool { return there.GI == i.GI })
	if at < 0 || c.Instances[at].Placement != i.Placement {
		m.sin("complete %v, which is not there", i)
		return gpu.Instance{}, errors.New("no such GPU instance")
	}
	there := &c.Instances[at]
	if there.CI != gpu.NoCompute {
		m.sin("complete %v, which is complete", i)
		return gpu.Instance{}, gpu.ErrOccupied
	}
	profile, err := c.Geometry.Legal(i.Placement)
	if err != nil {
		return gpu.Instance{}, err
	}
	// The driver derives the UUID from GPU and place.
	there.CI, there.UUID, there.Multiprocessors = 0, fmt.Sprintf("MIG-%s-%d-%d", c.UUID, i.Placement.Start, i.Placement.Size), profile.Multiprocessors
	return *there, nil
}

// Destroy implements Instances.
func (m *machine) Destroy(_ context.Context, i gpu.Instance) error {
	return m.call("destroy", i.GPU, true, func(c *card) error {
		at := slices.IndexFunc(c.Instances, func(there gpu.Instance) bool { return there.GI == i.GI })
		switch {
		case at < 0:
			return nil
		case c.Instances[at].Placement != i.Placement:
			m.sin("destroy %v, but gi%d is %v", i, i.GI, c.Instances[at])
			return errors.New("another instance has the id")
		case m.busy[c.Instances[at].UUID]:
			return gpu.ErrBusy
		case m.fleet.serves(c.Instances[at].UUID):
			m.sin("destroy %v under its MPS daemon", c.Instances[at])
			return gpu.ErrBusy
		case m.foreign[c.Instances[at].UUID]:
			m.sin("destroy %v, which is not ours", c.Instances[at])
		}
		c.Instances = slices.Delete(c.Instances, at, at+1)
		return nil
	})
}

// Processes implements Processes.
func (m *machine) Processes(_ context.Context, gpuName string) (all []gpu.Process, err error) {
	err = m.call("processes", gpuName, false, func(c *card) error {
		all = slices.Clone(c.processes)
		return c.unlisted
	})
	return all, err
}

// Mode implements Modes.
func (m *machine) Mode(_ context.Context, gpuName string) (mode gpu.Mode, err error) {
	err = m.call("mode", gpuName, false, func(c *card) error {
		mode = c.Mode
		return nil
	})
	return mode, err
}

// SetMode implements Modes.
func (m *machine) SetMode(_ context.Context, gpuName string, mode gpu.Mode) error {
	return m.call("set-mode", gpuName, true, func(c *card) error {
		switch {
		case !c.TogglesMIG():
			m.sin("set the mode of %s, which needs a reset", gpuName)
			return gpu.ErrUnsupported
		case mode == gpu.ModeDisabled && len(c.Instances) > 0:
			m.sin("turn MIG off on %s under %v", gpuName, c.Instances)
			c.Instances = nil
		}
		c.Mode = mode
		if mode == gpu.ModeEnabled && c.enabled != nil {
			c.Geometry = c.enabled
		}
		return nil
	})
}

// Set implements TimeSlice.
func (m *machine) Set(_ context.Context, gpuUUID, interval string) error {
	for name, c := range m.gpus {
		if c.UUID == gpuUUID {
			return m.call("time-slice", name, true, func(c *card) error {
				if c.Mode == gpu.ModeEnabled {
					return gpu.ErrUnsupported
				}
				c.interval = interval
				return nil
			})
		}
	}
	return fmt.Errorf("GPU %s: %w", gpuUUID, gpu.ErrLost)
}

// SetComputeMode implements Modes.
func (m *machine) SetComputeMode(_ context.Context, gpuName string, mode gpu.ComputeMode) error {
	return m.call("compute-mode", gpuName, true, func(c *card) error {
		if c.Mode == gpu.ModeEnabled {
			return gpu.ErrUnsupported
		}
		c.compute = mode
		return nil
	})
}

// Bind implements Passthrough.
func (m *machine) Bind(_ context.Context, gpuName string) (string, error) {
	err := m.call("bind", gpuName, true, func(c *card) error {
		c.bound = true
		return nil
	})
	return "group of " + gpuName, err
}

// Unbind implements Passthrough.
func (m *machine) Unbind(_ context.Context, gpuName string) error {
	return m.call("unbind", gpuName, true, func(c *card) error {
		if m.busy[gpuName] {
			return gpu.ErrBusy
		}
		c.bound = false
		return nil
	})
}

// intrude makes an instance as an administrator does, behind the agent's back.
func (m *machine) intrude(want Wanted) (gpu.Instance, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.intrudeNow(want)
}

// intrudeNow is intrude for a hook, which is called with the mutex held.
func (m *machine) intrudeNow(want Wanted) (gpu.Instance, error) {
	c := m.gpus[want.Use.GPU]
	if c.TogglesMIG() && c.Mode == gpu.ModeDisabled && len(c.Instances) == 0 {
		c.Mode = gpu.ModeEnabled
	}
	made, err := m.create(c, want.Use.Placement)
	if err != nil {
		return made, err
	}
	made, err = m.complete(c, made)
	m.foreign[made.UUID] = true
	return made, err
}

// reboot is what a boot does to the hardware: MIG devices and time slices are gone, and so is the MIG
// mode where it can change.
func (m *machine) reboot() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, c := range m.gpus {
		c.Instances, c.interval, c.compute, c.lost, c.bound = nil, defaultTimeSlice, gpu.ComputeDefault, false, false
		c.processes = nil
		if c.TogglesMIG() {
			c.Mode = gpu.ModeDisabled
		}
	}
	m.foreign, m.busy = map[string]bool{}, map[string]bool{}
	m.fleet.reboot()
}

// instances returns everything that exists, by GPU and start.
func (m *machine) instances() []gpu.Instance {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var all []gpu.Instance
	for _, c := range m.gpus {
		all = append(all, c.Instances...)
	}
	slices.SortFunc(all, func(a, b gpu.Instance) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Placement.Start, b.Placement.Start))
	})
	return all
}
