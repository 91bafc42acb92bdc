package unload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
)

// Verb is the verb's name.
const Verb = "unload"

// The reasons why a driver cannot be unloaded.
const (
	// ModuleInUse: programs or other modules use the driver.
	ModuleInUse = "ModuleInUse"
	// RootBusy: somebody still uses files of the former driver's root.
	RootBusy = "RootBusy"
)

// order are the modules that go, users before used. nouveau is the kernel's own driver for the same GPUs.
func order() []string {
	return []string{
		"nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia_fs", "nvidia_vgpu_vfio", "gdrdrv", "nvidia_cs", "nvidia", "nouveau",
	}
}

// Seen is what is known before anything is touched.
type Seen struct {
	// Modules are those of the kernel.
	Modules []survey.Module
	// Version is the version of the loaded driver, for people.
	Version string
	// Holders are the programs that have the driver open.
	Holders []Holder
	// State is the digest that the former driver container left of itself.
	State string
	// Mounts are the mount points at and below the root of the former driver container, as this process sees them, in the order of mounting.
	Mounts []string
}

// Holder is a program that has the driver open.
type Holder struct {
	PID     int
	Command string
}

func (h Holder) String() string { return fmt.Sprintf("%s (%d)", h.Command, h.PID) }

// Plan is what to do, in this order.
type Plan struct {
	// Keep says that the driver that is loaded is the wanted one: its modules stay, whoever uses them.
	Keep bool
	// Remove are the modules to be removed.
	Remove []string
	// Unmount are the mount points to be unmounted.
	Unmount []string
}

// Make decides what to do for a driver of the given digest; empty: whatever is loaded goes. It fails with ModuleInUse when somebody uses what is
// to go, before anything is touched.
func Make(seen Seen, digest string) (Plan, error) {
	plan := Plan{Unmount: slices.Clone(seen.Mounts)}
	slices.Reverse(plan.Unmount)
	loaded := map[string]survey.Module{}
	for _, m := range seen.Modules {
		loaded[m.Name] = m
	}
	if _, there := loaded["nvidia"]; there && digest != "" && digest == seen.State {
		plan.Keep = true
		return plan, nil
	}
	for _, name := range order() {
		if _, there := loaded[name]; there {
			plan.Remove = append(plan.Remove, name)
		}
	}
	return plan, plan.inUse(seen, loaded)
}

// inUse fails when a module that is to go is used by a program, or by a module that stays.
func (p Plan) inUse(seen Seen, loaded map[string]survey.Module) error {
	var users []string
	for _, name := range p.Remove {
		m := loaded[name]
		for _, by := range m.By {
			if !slices.Contains(p.Remove, by) {
				users = append(users, fmt.Sprintf("%s is used by the module %s", name, by))
			}
		}
		if programs := m.Refs - len(m.By); programs > 0 {
			users = append(users, fmt.Sprintf("%s is in use %s", name, times(programs)))
		}
	}
	if len(users) == 0 {
		return nil
	}
	return inUse(seen, strings.Join(users, ", "))
}

// inUse says who uses the driver, and what to do.
func inUse(seen Seen, what string) error {
	return host.Fail(ModuleInUse, "driver %s cannot be unloaded: %s, %s; end them, or restart the node", cmp.Or(seen.Version, "(unknown version)"), what,
		byWhom(seen.Holders))
}

// named is how many programs a message names.
const named = 10

func byWhom(holders []Holder) string {
	if len(holders) == 0 {
		return "by no program that can be seen"
	}
	var names []string
	for _, h := range holders[:min(len(holders), named)] {
		names = append(names, h.String())
	}
	if more := len(holders) - named; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return "by " + strings.Join(names, ", ")
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
