package unload

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
)

// ErrBusy says that a module or a mount is in use.
var ErrBusy = errors.New("in use")

// Kernel is the kernel's modules.
type Kernel interface {
	// Loaded returns the modules.
	Loaded() ([]survey.Module, error)
	// Remove takes a module out. It wraps ErrBusy when somebody uses it, and never waits for that to end.
	Remove(ctx context.Context, module string) error
}

// Mounts are the mounts of the host.
type Mounts interface {
	// Below returns the mount points at and below a path, in the order of mounting.
	Below(path string) ([]string, error)
	// Unmount takes one off. It wraps ErrBusy when somebody uses it; a lazy unmount would leave it to its users unseen.
	Unmount(path string) error
}

// Config is what the verb works with.
type Config struct {
	Roots  host.Roots
	Kernel Kernel
	Mounts Mounts
	// Processes is the procfs in which the host's programs are to be seen.
	Processes string
	// Digest is that of the driver that comes next: one that is loaded already stays. Empty: whatever is loaded goes.
	Digest string
	// StateFile is the host's path of the file in which a driver container keeps its digest.
	StateFile string
}

// Run unloads what a former driver container has left. It may be run again at any time: a module that could not be removed is still loaded, and so
// are those below it, so the state is never worse than "not everything is unloaded yet".
func (c Config) Run(ctx context.Context) host.Result {
	changed, message, err := c.run(ctx)
	return host.Outcome(Verb, host.Changed(changed), message, err)
}

func (c Config) run(ctx context.Context) (changed bool, message string, err error) {
	seen, err := c.look()
	if err != nil {
		return false, "", err
	}
	plan, err := Make(seen, c.Digest)
	if err != nil {
		return false, "", err
	}
	for _, module := range plan.Remove {
		if err := c.Kernel.Remove(ctx, module); err != nil {
			return changed, "", c.notRemoved(seen, module, err)
		}
		changed = true
	}
	for _, path := range plan.Unmount {
		if err := c.Mounts.Unmount(path); err != nil {
			return changed, "", c.notUnmounted(path, err)
		}
		changed = true
	}
	return changed, plan.say(seen), nil
}

func (c Config) notRemoved(seen Seen, module string, err error) error {
	if !errors.Is(err, ErrBusy) {
		return fmt.Errorf("remove module %s: %w", module, err)
	}
	// Somebody began to use it meanwhile.
	if holders, err := Holders(c.Processes); err == nil {
		seen.Holders = holders
	}
	return inUse(seen, module+" is in use")
}

func (c Config) notUnmounted(path string, err error) error {
	if !errors.Is(err, ErrBusy) {
		return fmt.Errorf("unmount %s: %w", c.Roots.OnHost(path), err)
	}
	return host.Fail(RootBusy, "the former driver's root cannot be unmounted: a process uses %s (`fuser -m` lists it): end it, or restart the node",
		c.Roots.OnHost(path))
}

// say returns what was done.
func (p Plan) say(seen Seen) string {
	var parts []string
	switch {
	case p.Keep:
		parts = append(parts, fmt.Sprintf("driver %s is loaded as wanted and stays", seen.Version))
	case len(p.Remove) > 0:
		parts = append(parts, "unloaded "+strings.Join(p.Remove, ", "))
	default:
		parts = append(parts, "no driver is loaded")
	}
	if len(p.Unmount) > 0 {
		parts = append(parts, fmt.Sprintf("unmounted the former driver's root (%d mounts)", len(p.Unmount)))
	}
	return strings.Join(parts, "; ")
}
