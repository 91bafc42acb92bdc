package hook

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// The hooks by their names in a CDI spec.
const (
	// CreateSymlinks makes the links given as --link TARGET::PATH.
	CreateSymlinks = "create-symlinks"
	// UpdateLDCache lets the container's linker find the libraries in the folders given as --folder.
	UpdateLDCache = "update-ldcache"
	// EnableCUDACompat prefers the image's own CUDA compatibility libraries where they suit the
	// driver given as --host-driver-version. It must run before UpdateLDCache.
	EnableCUDACompat = "enable-cuda-compat"
	// DisableDeviceNodeModification hides from the container that the driver may make device nodes.
	DisableDeviceNodeModification = "disable-device-node-modification"
	// All performs the four in the order in which they depend on each other: one process instead of four
	// at every start of a container.
	All = "prepare-container"
)

// container is what a hook works on.
type container struct {
	root
	// warn tells the user of something that went wrong and keeps no container from starting.
	warn func(format string, args ...any)
}

// options are the flags of all hooks.
type options struct {
	links   list
	folders list
	driver  string
}

// order is the order in which All performs the hooks: links before the cache that is made from them, and
// compatibility libraries before the cache that prefers them.
var order = [...]string{CreateSymlinks, EnableCUDACompat, UpdateLDCache, DisableDeviceNodeModification}

// hooks are the hooks that this program knows.
var hooks = map[string]func(container, options) error{
	CreateSymlinks:                createSymlinks,
	UpdateLDCache:                 updateLDCache,
	EnableCUDACompat:              enableCUDACompat,
	DisableDeviceNodeModification: disableDeviceNodeModification,
}

// Run performs the hook that the first argument names on the container whose OCI state stands in
// state, once. A hook that this version does not know, and a root file system that cannot be written,
// are warnings in log and no errors: they must not keep a container from starting.
func Run(args []string, state io.Reader, log io.Writer) error {
	if len(args) == 0 {
		return errors.New("name a hook: " + strings.Join(order[:], ", ") + " or " + All)
	}
	name := args[0]
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
	root, err := containerRoot(state)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer root.close()
	for _, name := range names {
		warn := warning(log, name)
		switch err := hooks[name](container{root: root, warn: warn}, options); {
		case errors.Is(err, unix.EROFS):
			warn("%v", err)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// warning returns how the hook warns.
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
	flags.StringVar(&o.driver, "host-driver-version", "", "with "+EnableCUDACompat+": `VERSION` of the loaded driver")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

// list is a flag that may be given several times.
type list []string

// String returns the values for messages.
func (l *list) String() string { return fmt.Sprint([]string(*l)) }

// Set adds a value.
func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}
