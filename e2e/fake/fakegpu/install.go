package fakegpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// The folders under dir, for the five roots of a node's configuration.
const (
	driverFolder = "driver"
	procFolder   = "proc"
	sysFolder    = "sys"
)

// DriverRoot is the root of the driver: libraries, programs, firmware and, under dev, its device nodes.
func DriverRoot(dir string) string { return filepath.Join(dir, driverFolder) }

// DevRoot is the root below which the device nodes are.
func DevRoot(dir string) string { return filepath.Join(dir, driverFolder) }

// ProcRoot takes the place of /proc.
func ProcRoot(dir string) string { return filepath.Join(dir, procFolder) }

// SysRoot takes the place of /sys.
func SysRoot(dir string) string { return filepath.Join(dir, sysFolder) }

// libraryFolder is the folder of the libraries under the driver root.
const libraryFolder = "usr/lib/x86_64-linux-gnu"

// programFolder is the folder of the programs under the driver root.
const programFolder = "usr/bin"

// Library is the path of libnvidia-ml.so.1.
func Library(dir string) string {
	return filepath.Join(DriverRoot(dir), libraryFolder, "libnvidia-ml.so.1")
}

// SMI is the path of nvidia-smi.
func SMI(dir string) string { return filepath.Join(DriverRoot(dir), programFolder, "nvidia-smi") }

// MPSControl is the path of nvidia-cuda-mps-control; nvidia-cuda-mps-server is in the same folder.
func MPSControl(dir string) string {
	return filepath.Join(DriverRoot(dir), programFolder, "nvidia-cuda-mps-control")
}

// stateFileName gives the state the name of one of the driver's libraries: a runtime that mounts those into a container mounts it too.
func stateFileName(version string) string { return "libnvidia-fakestate.so." + version }

func statePath(dir, version string) string {
	return filepath.Join(DriverRoot(dir), libraryFolder, stateFileName(version))
}

// Install installs the machine under dir, which must not have one yet. A driver is loaded unless the machine is bare; no device node exists (MakeNodes).
func Install(ctx context.Context, dir string, spec Spec) error {
	lay := InstallDriver
	if spec.Bare {
		lay = func(_ context.Context, dir string, spec Spec) error { return installHardware(dir, spec) }
	}
	if err := lay(ctx, dir, spec); err != nil {
		return err
	}
	spec = spec.withDefaults()
	machine, err := catalog.FindMachine(spec.Machine)
	if err != nil {
		return err
	}
	if err := writeKernelProc(dir, spec); err != nil {
		return fmt.Errorf("write %s: %w", ProcRoot(dir), err)
	}
	if err := writeSys(dir, machine); err != nil {
		return fmt.Errorf("write %s: %w", SysRoot(dir), err)
	}
	if spec.Bare {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(DevRoot(dir), "dev"), 0o755); err != nil {
		return err
	}
	if err := errors.Join(writeDriverProc(dir, spec, machine), writeModules(dir, spec.DriverVersion)); err != nil {
		return fmt.Errorf("write %s: %w", ProcRoot(dir), err)
	}
	return nil
}

// InstallDriver installs only the driver's files and the GPUs' state under dir, which is all that NVML on the host needs. It works
// without root.
func InstallDriver(ctx context.Context, dir string, spec Spec) error {
	spec = spec.withDefaults()
	tables, l, err := factory(dir, spec)
	if err != nil {
		return err
	}
	cuda, err := cudaVersion(spec.DriverVersion)
	if err != nil {
		return err
	}
	if err := writeDriver(ctx, DriverRoot(dir), spec.DriverVersion); err != nil {
		return err
	}
	l.Loads = 1
	l.load(spec.DriverVersion, spec.Kernel, cuda)
	if err := createState(statePath(dir, spec.DriverVersion), tables, l); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return spec.write(dir)
}

// installHardware writes the GPUs' state under dir, and no driver.
func installHardware(dir string, spec Spec) error {
	spec = spec.withDefaults()
	tables, l, err := factory(dir, spec)
	if err != nil {
		return err
	}
	for _, folder := range []string{filepath.Dir(barePath(dir)), DevRoot(dir)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if err := createState(barePath(dir), tables, l); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return spec.write(dir)
}

// factory returns the state of the machine as it is delivered, without a driver.
func factory(dir string, spec Spec) (hardware, live, error) {
	if _, err := ReadSpec(dir); err == nil {
		return hardware{}, live{}, fmt.Errorf("install %s under %s: there is a machine already", spec.Machine, dir)
	}
	machine, err := catalog.FindMachine(spec.Machine)
	if err != nil {
		return hardware{}, live{}, err
	}
	tables, err := hardwareOf(machine, spec.Node)
	if err != nil {
		return hardware{}, live{}, err
	}
	var l live
	for i, slot := range machine.GPUs {
		l.GPUs[i].Sensors = idle()
		if slot.MIG {
			l.GPUs[i].MIG, l.GPUs[i].PendingMIG = 1, 1
		}
	}
	return tables, l, nil
}

// WriteDriver writes the files of a driver version under a root, as a driver's image contains them: libraries, programs and firmware,
// and an empty file in the place of a machine's state, at StateFile.
func WriteDriver(ctx context.Context, root, version string) error {
	if err := writeDriver(ctx, root, version); err != nil {
		return err
	}
	return writeFile(filepath.Join(root, StateFile(version)), "")
}

// StateFile is the path, in the root of a driver, at which the state of the machine (BareState) must be mounted.
func StateFile(version string) string { return filepath.Join(libraryFolder, stateFileName(version)) }

// BareState is the path of the state of a bare machine.
func BareState(dir string) string { return barePath(dir) }

// writeDriver writes libraries, programs and firmware of a driver version under a root.
func writeDriver(ctx context.Context, root, version string) error {
	cache, err := DefaultCache()
	if err != nil {
		return err
	}
	engine, err := Build(ctx, cache)
	if err != nil {
		return err
	}
	for _, l := range engine.libraries(version) {
		if err := l.install(filepath.Join(root, libraryFolder), version); err != nil {
			return fmt.Errorf("install %s: %w", l.name, err)
		}
	}
	for file, name := range programs(version) {
		if err := copyFile(engine.path(file), filepath.Join(root, programFolder, name), 0o755); err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
	}
	for _, firmware := range []string{"gsp_ga10x.bin", "gsp_tu10x.bin"} {
		path := filepath.Join(root, "lib/firmware/nvidia", version, firmware)
		if err := writeFile(path, "fake "+firmware+"\n"); err != nil {
			return fmt.Errorf("install firmware: %w", err)
		}
	}
	return nil
}

// installed is a library and the links to it.
type installed struct {
	source string // the compiled file
	name   string // libcuda.so
	soname string // libcuda.so.1
}

func (e Engine) path(name string) string { return filepath.Join(e.folder, name) }

func (e Engine) libraries(version string) []installed {
	nvml := nvmlLibrary
	if b, ok := branchOf(version); ok {
		nvml = b.library
	}
	list := []installed{
		{e.path(nvml), "libnvidia-ml.so", "libnvidia-ml.so.1"},
		{e.path("libcuda.so"), "libcuda.so", "libcuda.so.1"},
	}
	for _, c := range companions() {
		list = append(list, installed{e.path(c.name), c.name, c.soname})
	}
	return list
}

func (l installed) install(folder, version string) error {
	versioned := l.name + "." + version
	return errors.Join(
		copyFile(l.source, filepath.Join(folder, versioned), 0o755),
		os.Symlink(versioned, filepath.Join(folder, l.soname)),
		os.Symlink(l.soname, filepath.Join(folder, l.name)),
	)
}

func copyFile(from, to string, mode os.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	// A child of this process that was forked while a program is open for writing keeps it busy: it cannot be run (go.dev/issue/22315).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(to, data, mode)
}
