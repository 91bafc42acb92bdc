package fakegpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// Module is a kernel module of the driver.
type Module string

// The kernel modules. All need NVIDIA, and to be of its version.
const (
	NVIDIA  Module = "nvidia"
	UVM     Module = "nvidia_uvm"
	Modeset Module = "nvidia_modeset"
	Peermem Module = "nvidia_peermem"
	GDS     Module = "nvidia_fs"
	GDRCopy Module = "gdrdrv"
)

func modules() []Module { return []Module{NVIDIA, UVM, Modeset, Peermem, GDS, GDRCopy} }

// loadedWithDriver are the modules of a machine that is not bare.
func loadedWithDriver() []Module { return []Module{NVIDIA, UVM, Modeset} }

// Insmod loads a module of a driver version into a bare machine, as insmod(8) does: it appears in /proc/modules, /proc/devices and /sys/module. Device
// nodes are created for GDS and GDRCopy only; those of the driver need MakeNodes. Errors are those of init_module(2): EEXIST, ENOENT where NVIDIA is not loaded, EINVAL where that is of another
// version.
func Insmod(dir string, module Module, version string) error {
	if !slices.Contains(modules(), module) {
		return fmt.Errorf("load %s: no such module: %w", module, unix.ENOENT)
	}
	err := changeModules(dir, func(k *kernel) error { return k.load(module, version) })
	if err != nil {
		return fmt.Errorf("load %s: %w", module, err)
	}
	return nil
}

// Rmmod unloads a module of a bare machine, as rmmod(8) does, with the device nodes that the kernel created. Errors are those of delete_module(2): ENOENT
// where it is not loaded, EWOULDBLOCK while another module needs it or any process on the machine, in a container or not, has the
// driver open.
func Rmmod(dir string, module Module) error {
	err := changeModules(dir, func(k *kernel) error { return k.unload(module) })
	if err != nil {
		return fmt.Errorf("unload %s: %w", module, err)
	}
	return nil
}

// Modules returns the loaded modules, the youngest first, as in /proc/modules.
func Modules(dir string) ([]Module, error) {
	text, err := os.ReadFile(filepath.Join(ProcRoot(dir), "modules"))
	if err != nil {
		return nil, err
	}
	var list []Module
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		list = append(list, Module(name))
	}
	return list, nil
}

// kernel is a bare machine whose modules are being changed.
type kernel struct {
	dir    string
	spec   Spec
	loaded []Module
}

var errNotBare = errors.New("the machine is not bare: its driver is changed as a whole")

// changeModules lets f change the loaded modules, one caller at a time, and then writes their files.
func changeModules(dir string, f func(*kernel) error) error {
	spec, err := ReadSpec(dir)
	if err != nil {
		return err
	}
	if !spec.Bare {
		return errNotBare
	}
	lock, err := os.Open(barePath(dir)) // flock(2) of the state is used by the engine, for opening a GPU: held for moments
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // opened for reading
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	loaded, err := Modules(dir)
	if err != nil {
		return err
	}
	k := &kernel{dir: dir, spec: spec, loaded: loaded}
	if err := f(k); err != nil {
		return err
	}
	return k.show()
}

func (k *kernel) load(module Module, version string) error {
	if slices.Contains(k.loaded, module) {
		return unix.EEXIST
	}
	if module != NVIDIA {
		running, err := k.version()
		switch {
		case err != nil:
			return err
		case running == "":
			return fmt.Errorf("unknown symbols of %s: %w", NVIDIA, unix.ENOENT)
		case running != version:
			return fmt.Errorf("version %s disagrees with %s %s: %w", version, NVIDIA, running, unix.EINVAL)
		}
	}
	machine, err := catalog.FindMachine(k.spec.Machine)
	if err != nil {
		return err
	}
	if module == NVIDIA {
		if err := k.power(version, machine); err != nil {
			return err
		}
	}
	for _, n := range kernelNodes(module) {
		if err := n.make(filepath.Join(DevRoot(k.dir), "dev")); err != nil {
			return err
		}
	}
	k.loaded = append([]Module{module}, k.loaded...)
	return writeFiles(k.moduleFolder(module), map[string]string{"version": version + "\n", "refcnt": "0\n"})
}

// moduleFolder is the folder of a module in sysfs.
func (k *kernel) moduleFolder(module Module) string {
	return filepath.Join(SysRoot(k.dir), "module", string(module))
}

// version is that of the loaded driver; empty when none is.
func (k *kernel) version() (string, error) {
	state, err := Read(k.dir)
	if err != nil || !state.DriverLoaded {
		return "", err
	}
	return state.DriverVersion, nil
}

// power starts the GPUs under a driver.
func (k *kernel) power(version string, machine catalog.Machine) error {
	cuda, err := cudaVersion(version)
	if err != nil {
		return fmt.Errorf("%w: %w", err, unix.EINVAL)
	}
	spec := k.spec
	spec.DriverVersion = version
	if err := writeDriverProc(k.dir, spec, machine); err != nil {
		return err
	}
	return reload(barePath(k.dir), func(l *live) {
		l.load(version, spec.Kernel, cuda)
	})
}

func (k *kernel) unload(module Module) error {
	if !slices.Contains(k.loaded, module) {
		return fmt.Errorf("not loaded: %w", unix.ENOENT)
	}
	if module == NVIDIA {
		if len(k.loaded) > 1 {
			return fmt.Errorf("in use by %v: %w", slices.DeleteFunc(slices.Clone(k.loaded), func(m Module) bool { return m == NVIDIA }), unix.EWOULDBLOCK)
		}
		if err := k.powerOff(); err != nil {
			return err
		}
	}
	k.loaded = slices.DeleteFunc(k.loaded, func(m Module) bool { return m == module })
	return errors.Join(os.RemoveAll(k.moduleFolder(module)), removeNodes(k.dir, kernelNodes(module)))
}

// powerOff takes the driver from the GPUs, unless a process has it open: opening it shares the lock that is taken here.
func (k *kernel) powerOff() (err error) {
	s, err := openState(barePath(k.dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }() // the lock ends with the descriptor
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: openLock, Len: 1}
	if err := s.lock(unix.F_OFD_SETLK, &lock); errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("a process has the driver open: %w", unix.EWOULDBLOCK)
	} else if err != nil {
		return err
	}
	return k.off()
}

// off is the state after the end of the driver, whether it was unloaded or the machine lost power.
func (k *kernel) off() error {
	if err := reload(barePath(k.dir), func(l *live) { l.Loaded = 0 }); err != nil {
		return err
	}
	for _, folder := range []string{"driver/nvidia", "driver/nvidia-caps"} {
		if err := os.RemoveAll(filepath.Join(ProcRoot(k.dir), folder)); err != nil {
			return err
		}
	}
	return nil
}

// lose removes all modules, as a power cycle does.
func (k *kernel) lose() error {
	k.loaded = nil
	if err := k.off(); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(filepath.Join(SysRoot(k.dir), "module")), os.RemoveAll(filepath.Join(DevRoot(k.dir), "dev")))
}

// show writes the kernel's files about its modules.
func (k *kernel) show() error {
	version, err := k.version()
	if err != nil {
		return err
	}
	return writeFiles(ProcRoot(k.dir), map[string]string{
		"modules": procModules(k.loaded), "devices": procDevices(version, k.loaded),
	})
}

// procModules is /proc/modules. The count of NVIDIA is that of the modules that need it: a file cannot follow which processes open the driver.
func procModules(loaded []Module) string {
	var needs []string
	for _, m := range loaded {
		if m != NVIDIA {
			needs = append(needs, string(m)+",")
		}
	}
	var text strings.Builder
	for _, m := range loaded {
		users := "-"
		count := 0
		if m == NVIDIA && len(needs) > 0 {
			users, count = strings.Join(needs, ""), len(needs)
		}
		fmt.Fprintf(&text, "%s 4096 %d %s Live 0x0000000000000000 (OE)\n", m, count, users)
	}
	return text.String()
}
