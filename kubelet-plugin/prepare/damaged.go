package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// rebuildRecord returns the damaged record with the devices that the API server lists in the claim's allocation.
func (p *Preparer) rebuildRecord(ctx context.Context, r Record) (Record, error) {
	claim, err := Claim{}, ErrNoClaim
	if r.Name != "" {
		claim, err = p.Claims.Allocated(ctx, r.Ref)
	}
	if err != nil {
		return r, fmt.Errorf("read the allocation of the claim, because its record is unreadable: %w", err)
	}
	r.Wanted = claim.Wanted
	return r, nil
}

// recoverRecord returns the damaged record of a deleted claim with the MIG devices that were certainly created for it: their UUIDs are in the damaged
// text, and no other record has their place. Other MIG devices may be those of other programs, and the rest of the text may be wrong.
func (p *Preparer) recoverRecord(ctx context.Context, r Record) (Record, error) {
	var unreadable *UnreadableRecord
	if _, err := p.Records.Load(r.UID); !errors.As(err, &unreadable) {
		return r, fmt.Errorf("read the damaged record again: %w", err)
	}
	others, err := p.others(r)
	if err != nil {
		return r, err
	}
	for _, g := range p.Inventory.Node().GPUs {
		if g.Geometry == nil {
			continue
		}
		instances, err := p.Instances.List(ctx, g.Name())
		if err != nil {
			return r, fmt.Errorf("read the instances of %s, because a record is unreadable: %w", g.Name(), err)
		}
		for _, i := range instances {
			owned := slices.ContainsFunc(others, func(other Record) bool { return other.Owns(i.GPU, i.Placement) })
			if !owned && i.UUID != "" && strings.Contains(unreadable.Text, strconv.Quote(i.UUID)) {
				r.Wanted = append(r.Wanted, Wanted{Use: gpu.Device{GPU: i.GPU, Use: gpu.Use{Shape: gpu.MIG, Placement: i.Placement}}})
				r.Instances = append(r.Instances, i)
			}
		}
	}
	klog.FromContext(ctx).Info("The record was unreadable and the claim is deleted: the MIG devices that the record names are destroyed; "+
		"another one of the claim stays withheld until it is destroyed with nvidia-smi", "devices", r.Instances)
	return r, nil
}
