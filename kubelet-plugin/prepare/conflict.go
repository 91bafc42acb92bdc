package prepare

import (
	"fmt"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// AlreadyHeld is the error of a device that another claim holds. It wraps gpu.ErrOccupied.
type AlreadyHeld struct {
	// GPU and Use are what the other claim holds.
	GPU string
	Use gpu.Use
	// Claim is the other claim; Releasing reports that it is being unprepared, so that a retry will succeed.
	Claim     Ref
	Releasing bool
}

// Error names the holder and what it holds.
func (e *AlreadyHeld) Error() string {
	text := fmt.Sprintf("held by claim %s as %v", e.Claim, e.Use)
	if e.Releasing {
		text += ", being released"
	}
	return text
}

// Unwrap returns gpu.ErrOccupied.
func (e *AlreadyHeld) Unwrap() error { return gpu.ErrOccupied }

// ForeignInstance is the error of a device whose memory slices are occupied by a MIG device that no record owns. It was created by another
// program, and Tessera never destroys it. It wraps gpu.ErrOccupied.
type ForeignInstance struct{ Instance gpu.Instance }

// Error names the instance and what to do.
func (e *ForeignInstance) Error() string {
	return fmt.Sprintf("%v occupies the memory slices and was not created by Tessera: destroy it", e.Instance)
}

// Unwrap returns gpu.ErrOccupied.
func (e *ForeignInstance) Unwrap() error { return gpu.ErrOccupied }

// holder is a use of a GPU by a claim or by another program, with the error for a claim that conflicts with it.
type holder struct {
	use     gpu.Use
	refusal error
}

// holdersOn returns the uses of the GPU other than the record's claim: the devices of other claims, whether their MIG devices exist or not, and
// the MIG devices that no record owns.
func holdersOn(r Record, v view, g reading) []holder {
	var found []holder
	for _, other := range v.others {
		for _, w := range other.on(g.name) {
			found = append(found, holder{use: w.Use.Use, refusal: &AlreadyHeld{
				GPU: g.name, Use: w.Use.Use, Claim: other.Ref, Releasing: other.State == StateUnpreparing,
			}})
		}
	}
	for _, i := range g.Instances {
		if !r.created(i) && !ownedByAny(v.others, i) {
			use := gpu.Use{Shape: gpu.MIG, Placement: i.Placement}
			found = append(found, holder{use: use, refusal: &ForeignInstance{Instance: i}})
		}
	}
	return found
}

func ownedByAny(records []Record, i gpu.Instance) bool {
	for _, r := range records {
		if r.Owns(i.GPU, i.Placement) {
			return true
		}
	}
	return false
}

// admitDevices returns an error that names the holder if the claim's devices on the GPU conflict with other uses, or with each other.
func admitDevices(r Record, v view, g reading) error {
	held := holdersOn(r, v, g)
	for _, w := range r.on(g.name) {
		if err := checkMemoryLimit(w, g.GPU); err != nil {
			return fmt.Errorf("device %s: memoryLimit: %w", w.Device, err)
		}
		g.ShareableBytes = 0 // claims that were allocated before less was published keep what they have
		if err := checkFit(g.Empty(v.shares), held, w.Use.Use); err != nil {
			return fmt.Errorf("device %s: %w", w.Device, err)
		}
		held = append(held, holder{use: w.Use.Use, refusal: &AlreadyHeld{GPU: g.name, Use: w.Use.Use, Claim: r.Ref}})
	}
	return nil
}

// checkMemoryLimit returns why the memory limit of the device's containers cannot be raised as its parameters demand.
func checkMemoryLimit(w Wanted, g gpu.GPU) error {
	limit := uint64(w.Settings.MemoryLimitBytes)
	switch {
	case limit == 0:
		return nil
	case !g.Limiter.Limits(w.Use.Shape):
		return fmt.Errorf("the memory of devices of type %v is not limited on this GPU, memoryEnforced is none: %w", w.Use.Shape, gpu.ErrUnsupported)
	case limit < w.Use.Share.MemoryBytes:
		return fmt.Errorf("%d bytes: is below the %d bytes of memory that the claim requests: %w", limit, w.Use.Share.MemoryBytes, gpu.ErrUnsupported)
	case limit > g.Shareable():
		return fmt.Errorf("%d bytes: is more than the %d bytes that shares of this GPU have: %w", limit, g.Shareable(), gpu.ErrUnsupported)
	}
	return nil
}

// checkFit returns nil if the use fits on the GPU together with each holder and with all of them; else the refusal of the first holder that
// excludes it, or the error of the occupancy.
func checkFit(empty gpu.Occupancy, held []holder, use gpu.Use) error {
	if _, err := empty.Take(use); err != nil {
		return err
	}
	all := empty
	for _, h := range held {
		if _, err := occupy(empty, h.use).Take(use); err != nil {
			return h.refusal
		}
		all = occupy(all, h.use)
	}
	_, err := all.Take(use)
	return err
}

// occupy returns the occupancy with the use. A use that cannot be added, because two holders overlap or the geometry lacks the profile, is
// withheld: no other claim may get it.
func occupy(o gpu.Occupancy, use gpu.Use) gpu.Occupancy {
	next, err := o.Take(use)
	if err != nil {
		return o.Withhold(use.Placement.Mask())
	}
	return next
}
