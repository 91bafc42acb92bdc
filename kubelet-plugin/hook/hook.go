package hook

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// The names of the hooks in a CDI spec.
const (
	// CreateSymlinks creates the links given as --link TARGET::PATH.
	CreateSymlinks = "create-symlinks"
	// UpdateLDCache adds the libraries in the folders given as --folder to the container's linker cache.
	UpdateLDCache = "update-ldcache"
	// EnableCUDACompat prefers the image's own CUDA compatibility libraries if they support the driver given as
	// --host-driver-version. It must run before UpdateLDCache.
	EnableCUDACompat = "enable-cuda-compat"
	// DisableDeviceNodeModification sets the driver's parameter for the container so that its libraries create no device
	// nodes.
	DisableDeviceNodeModification = "disable-device-node-modification"
	// All runs the four in the order of their dependencies: one process instead of four at every start of a container.
	All = "prepare-container"
)

// container is the container on which a hook works.
type container struct {
	root
	// warn logs a failure that must not keep the container from starting.
	warn func(format string, args ...any)
}

// options are the values of the flags of all hooks.
type options struct {
	links   list
	folders list
	driver  string
	// sockets and device are those of LimitMemory.
	sockets, device string
}

// order is the order in which All runs the hooks: links before the cache that is built from them, and compatibility
// libraries before the cache that prefers them.
var order = [...]string{CreateSymlinks, EnableCUDACompat, UpdateLDCache, DisableDeviceNodeModification}

// hooks are the hooks of this version, by name.
var hooks = map[string]func(container, options) error{
	CreateSymlinks:                createSymlinks,
	UpdateLDCache:                 updateLDCache,
	EnableCUDACompat:              enableCUDACompat,
	DisableDeviceNodeModification: disableDeviceNodeModification,
}

// Run runs the hook that the first argument names on the container whose OCI state is read from state. A hook that this
// version does not have, and a place that is read-only or on a volume, are warnings in log and not errors: they must not
// keep a container from starting.
func Run(args []string, state io.Reader, log io.Writer) error {
	if len(args) == 0 {
		return errors.New("name a hook: " + strings.Join(order[:], ", ") + " or " + All)
	}
	name := args[0]
	if name == LimitMemory {
		return runLimitMemory(args[1:], state, log)
	}
	names := order[:]
	if name != All {
		names = []string{name}
	}
	if _, known := hooks[names[0]]; !known {
		warning(log, name)("unknown hook, nothing done")
		return nil
	}
	options, err := parse(name, args[1:], log)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	running, err := readState(state)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	root, err := running.root()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer root.close()
	for _, name := range names {
		warn := warning(log, name)
		switch err := hooks[name](container{root: root, warn: warn}, options); {
		case isUnwritable(err):
			warn("%v", err)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// runLimitMemory is Run for the one hook that does nothing in the container's root. Its failures keep the container from starting.
func runLimitMemory(args []string, state io.Reader, log io.Writer) error {
	options, err := parse(LimitMemory, args, log)
	if err != nil {
		return fmt.Errorf("%s: %w", LimitMemory, err)
	}
	container, err := readState(state)
	if err != nil {
		return fmt.Errorf("%s: %w", LimitMemory, err)
	}
	if err := limitMemory(options, container, "/proc"); err != nil {
		return fmt.Errorf("%s: %w", LimitMemory, err)
	}
	return nil
}

// warning returns the warn function of the hook.
func warning(log io.Writer, hook string) func(format string, args ...any) {
	return func(format string, args ...any) {
		fmt.Fprintf(log, "%s: %s: warning: %s\n", Program, hook, fmt.Sprintf(format, args...))
	}
}

func parse(name string, args []string, log io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(log)
	flags.Var(&o.links, "link", "with "+CreateSymlinks+": `TARGET::PATH` of a link in the container")
	flags.Var(&o.folders, "folder", "with "+UpdateLDCache+": `FOLDER` of libraries in the container")
	flags.StringVar(&o.sockets, "sockets", "", "with "+LimitMemory+": `FOLDER` of the agents' sockets on the host")
	flags.StringVar(&o.device, "device", "", "with "+LimitMemory+": `UID/POSITION` of a device of a claim")
	flags.StringVar(&o.driver, "host-driver-version", "", "with "+EnableCUDACompat+": `VERSION` of the loaded driver")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

// list is a flag that may be repeated.
type list []string

// String returns the values for messages.
func (l *list) String() string { return fmt.Sprint([]string(*l)) }

// Set appends a value.
func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}
