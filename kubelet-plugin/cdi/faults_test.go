package cdi

import (
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Specs are written or removed as a whole, also on a disk with faults, and to remove one needs no space. They are not synced: the folder is emptied by a
// reboot.
func TestSpecsWithDiskFaults(t *testing.T) {
	t.Parallel()
	write := func(s *Specs) error {
		_, err := s.Write("a", []prepare.Prepared{whole(0)})
		return err
	}
	for name, operation := range map[string]struct {
		before, do func(s *Specs) error
		full       bool
	}{
		"write":       {nil, write, false},
		"write again": {write, write, false},
		"refresh":     {write, (*Specs).Refresh, false},
		"remove":      {write, func(s *Specs) error { return s.Remove("a") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := disktest.TryFaults(t, func(d *disktest.Disk) disktest.Case {
				h := newHost(t)
				h.Files, h.Dir = d, d.Dir()+"/cdi"
				return disktest.Case{
					Before: func() error {
						if operation.before == nil {
							return nil
						}
						return operation.before(New(h.Config))
					},
					Do: func() error { return operation.do(New(h.Config)) },
					State: func() (string, error) {
						if syncs := d.Syncs(); len(syncs) > 0 {
							t.Errorf("volatile files are synced: %v", syncs)
						}
						claims, err := New(h.Config).List()
						return strings.Join(claims, ", ") + h.common(), err
					},
					Succeeds: func(f disktest.Fault) bool { return operation.full && disktest.IsFull(f) },
				}
			})
			t.Logf("%d faults", tried)
		})
	}
}
