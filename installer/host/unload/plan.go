package unload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
)

// Verb is the name of the verb.
const Verb = "unload"

// Reasons why a driver cannot be unloaded.
const (
	// ModuleInUse: programs or other modules use the driver.
	ModuleInUse = "ModuleInUse"
	// RootBusy: a process still uses files of the previous driver's root.
	RootBusy = "RootBusy"
)

// order returns the modules to remove, dependents first. nouveau is the kernel's own driver for the same GPUs.
func order() []string {
	return []string{
		"nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia_fs", "nvidia_vgpu_vfio", "gdrdrv", "nvidia_cs", "nvidia", "nouveau",
	}
}

// Seen is the state of the host before any change.
type Seen struct {
	// Modules are the loaded kernel modules.
	Modules []survey.Module
	// Version is the version of the loaded driver, for messages.
	Version string
	// Holders are the processes that have the driver open.
	Holders []Holder
	// State is the digest that the previous driver container stored.
	State string
	// Mounts are the mount points at and below the root of the previous driver container, in this process's mount namespace, in mount order.
	Mounts []string
}

// Holder is a process that has the driver open.
type Holder struct {
	PID     int
	Command string
}

func (h Holder) String() string { return fmt.Sprintf("%s (%d)", h.Command, h.PID) }

// Plan has the steps in order.
type Plan struct {
	// Keep reports that the loaded driver is the desired one: its modules stay, even if in use.
	Keep bool
	// Remove are the modules to be removed.
	Remove []string
	// Unmount are the mount points to be unmounted.
	Unmount []string
}

// Make returns the plan for a driver of the given digest; empty means that any loaded driver is removed. It fails with ModuleInUse, before any
// change, if something to be removed is in use.
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

// inUse returns an error if a module to be removed is used by a program, or by a module that stays.
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

// inUse returns an error that names the users of the driver and what to do.
func inUse(seen Seen, what string) error {
	return host.Fail(ModuleInUse, "driver %s cannot be unloaded: %s, %s; end them, or restart the node", cmp.Or(seen.Version, "(unknown version)"), what,
		byWhom(seen.Holders))
}

// named is the maximum number of programs in a message.
const named = 10

func byWhom(holders []Holder) string {
	if len(holders) == 0 {
		return "by no visible process"
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
