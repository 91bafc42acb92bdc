package fakegpu

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
)

// Reboot does to the machine what a restart does: instances, time slices and modes are gone, the MIG
// mode is off again from Hopper on and what was pending on Ampere, boot_id is new. Sessions that
// were open end with NVML_ERROR_DRIVER_NOT_LOADED. Injected faults stay.
func Reboot(dir string) error {
	spec, err := ReadSpec(dir)
	if err != nil {
		return err
	}
	if err := reload(findState(dir, spec), func(*live) {}); err != nil {
		return fmt.Errorf("reboot %s: %w", dir, err)
	}
	return writeFile(filepath.Join(ProcRoot(dir), "sys/kernel/random/boot_id"), newBootID())
}

// reload ends every session and resets the GPUs; f says how the driver is afterwards.
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
		f(l)
		return nil
	})
	if err != nil {
		return err
	}
	return s.post(event{GPU: maxGPUs}) // of no GPU: wakes who waits for events, so that they end
}

// restarted is a GPU after a restart of the machine or the driver.
func restarted(g gpuState, keepsMIG bool) gpuState {
	next := gpuState{
		Lost: g.Lost, LinksDown: g.LinksDown,
		RemapCorrectable: g.RemapCorrectable, RemapUncorrectable: g.RemapUncorrectable, RemapFailed: g.RemapFailed,
		Sensors: idle(),
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
