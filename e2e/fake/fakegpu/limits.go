package fakegpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// MemoryBackend is how a driver limits the memory that a control group allocates on a GPU.
type MemoryBackend uint32

// The backends of driver 615: the controller dmem of Linux 6.14 and newer, and misc.
const (
	NoLimits MemoryBackend = iota
	Misc
	Dmem
)

// memoryBackend returns what a driver uses with a kernel when it is loaded.
func memoryBackend(driver, kernel string) MemoryBackend {
	var major, minor int
	if branchNumber(driver) < 615 {
		return NoLimits
	}
	if _, err := fmt.Sscanf(kernel, "%d.%d", &major, &minor); err == nil && (major > 6 || major == 6 && minor >= 14) {
		return Dmem
	}
	return Misc
}

// branchNumber returns the branch of a driver version, such as 615; 0 for another text.
func branchNumber(version string) int {
	var number int
	if _, err := fmt.Sscanf(version, "%d.", &number); err != nil {
		return 0
	}
	return number
}

// load sets what a driver has after it was loaded into a kernel.
func (l *live) load(driver, kernel string, cuda uint32) {
	l.Loaded, l.CUDAVersion, l.DriverVersion = 1, cuda, text32{}
	copy(l.DriverVersion[:], driver)
	l.MemoryLimits = uint32(memoryBackend(driver, kernel))
}

// SetMemoryBackend loads the driver with another backend, as the module's parameter RmMemacctMode does.
func SetMemoryBackend(dir string, b MemoryBackend) error {
	return withState(dir, func(s *session) error {
		return s.change(func(l *live) error {
			l.MemoryLimits, l.Limits = uint32(b), [maxLimits]memoryLimit{}
			return nil
		})
	})
}

// writeRegions writes the regions that the driver has registered with dmem, if it has.
func writeRegions(dir string) error {
	file := filepath.Join(Hierarchy(dir), "dmem.capacity")
	return withState(dir, func(s *session) error {
		var regions strings.Builder
		for _, g := range s.state().Hardware.GPUs[:s.state().Hardware.GPUCount] {
			fmt.Fprintf(&regions, "nvidia/%08X:%02X:%02X.0/vidmem %d\n", g.Domain, g.Bus, g.Device, s.state().Hardware.Models[g.Model].MemoryMIB<<20)
		}
		if MemoryBackend(s.current().MemoryLimits) != Dmem {
			err := os.Remove(file)
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			return err
		}
		return os.WriteFile(file, []byte(regions.String()), 0o644)
	})
}

// IgnoreLimits makes the kernel ignore later limits, as dmem ignores one below what is allocated.
func IgnoreLimits(dir string) error {
	return withState(dir, func(s *session) error {
		return s.change(func(l *live) error {
			l.IgnoresLimits = 1
			return nil
		})
	})
}

// InheritLimit gives groups without a limit one that misc has kept of a group that was removed: the driver identifies groups by their address in the kernel,
// which new ones reuse.
func InheritLimit(dir string, gpu int, bytes uint64) error {
	return changeGPU(dir, gpu, func(g *gpuState) { g.InheritedLimit = bytes })
}

// MemoryLimit is a limit of a control group on a GPU, in bytes.
type MemoryLimit struct {
	GPU int `json:"gpu"`
	// Folder is the folder of the group.
	Folder string `json:"folder"`
	Soft   uint64 `json:"soft,omitempty"`
	Hard   uint64 `json:"hard"`
}

// MemoryLimits returns the limits that groups have.
func MemoryLimits(dir string) ([]MemoryLimit, error) {
	var limits []MemoryLimit
	err := withState(dir, func(s *session) error {
		for _, l := range s.current().Limits {
			if l.Used != 0 {
				limits = append(limits, MemoryLimit{GPU: int(l.GPU), Folder: text(l.Path[:]), Soft: l.Soft, Hard: l.Hard})
			}
		}
		return nil
	})
	return limits, err
}

// Hierarchy is the folder of the machine's control groups, where sysfs has it.
func Hierarchy(dir string) string { return filepath.Join(SysRoot(dir), "fs/cgroup") }
