package fakegpu

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Reboot applies a restart of the machine: instances and time slices are removed, modes return to their defaults, MIG mode is off again
// from Hopper on, a MIG mode pending on Ampere takes effect, and boot_id is new. Faults that a reset clears are cleared; a GPU that had
// fallen off the bus is back and has joined its fabric. Open sessions end with NVML_ERROR_DRIVER_NOT_LOADED. Faults of functions stay, as
// does a row that could not be remapped. A bare machine has no driver afterwards.
func Reboot(dir string) error {
	spec, err := ReadSpec(dir)
	if err != nil {
		return err
	}
	if spec.Bare {
		err = changeModules(dir, (*kernel).lose)
	} else {
		err = reload(findState(dir, spec), func(*live) {})
	}
	if err == nil {
		err = changeLive(dir, (*live).powerCycle)
	}
	if err == nil {
		err = showOnBus(dir)
	}
	if err != nil {
		return fmt.Errorf("reboot %s: %w", dir, err)
	}
	return SetBootID(dir, newBootID())
}

// SetBootID sets the boot id of the machine, for a caller that also publishes it elsewhere.
func SetBootID(dir, id string) error {
	return writeFile(filepath.Join(ProcRoot(dir), "sys/kernel/random/boot_id"), strings.TrimSpace(id)+"\n")
}

// reload ends every session, resets the GPUs and removes the limits of all control groups; f returns the state of the driver afterwards.
func reload(path string, f func(*live)) (err error) {
	s, err := openState(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	h := s.state().Hardware
	err = s.change(func(l *live) error {
		l.Loads++
		for i := range h.GPUCount {
			model := h.Models[h.GPUs[i].Model]
			l.GPUs[i] = restarted(l.GPUs[i], model.MIGNeedsReset != 0)
		}
		l.Limits = [maxLimits]memoryLimit{}
		f(l)
		return nil
	})
	if err != nil {
		return err
	}
	return s.post(event{GPU: maxGPUs}) // of no GPU: wakes all waiters for events, so that their waits end
}

// powerCycle applies what only a restart of the machine changes.
func (l *live) powerCycle() error {
	for i := range l.GPUs {
		g := &l.GPUs[i]
		g.Lost, g.FabricState, g.FabricStatus, g.FabricHealth = 0, 0, 0, 0
	}
	return nil
}

// restarted is a GPU after a restart of the machine or of the driver.
func restarted(g gpuState, keepsMIG bool) gpuState {
	next := gpuState{
		RemapCorrectable: g.RemapCorrectable, RemapUncorrectable: g.RemapUncorrectable + g.RemapPending, RemapFailed: g.RemapFailed,
		LifetimeECCCorrected: g.LifetimeECCCorrected, LifetimeECCUncorrected: g.LifetimeECCUncorrected,
		Virtualization: g.Virtualization, MIGNeedsReset: g.MIGNeedsReset,
		LargerMemoryMIB: g.LargerMemoryMIB, LargerMultiprocessors: g.LargerMultiprocessors, PinsMIG: g.PinsMIG,
		FabricState: g.FabricState, FabricStatus: g.FabricStatus, FabricHealth: g.FabricHealth,
		Resets: g.Resets, Sensors: idle(),
	}
	next.Sensors.RetiredSingle, next.Sensors.RetiredMultiple = g.Sensors.RetiredSingle, g.Sensors.RetiredMultiple+g.RetirePending
	if g.Lost == fallenOff {
		next.Lost = g.Lost
	}
	if keepsMIG {
		next.MIG, next.PendingMIG = g.PendingMIG, g.PendingMIG
	}
	return next
}

// newBootID returns the text of a boot_id file of a machine that has just started.
func newBootID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x\n", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
