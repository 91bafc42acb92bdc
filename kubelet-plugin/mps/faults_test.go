package mps

import (
	"fmt"
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
)

// Configurations and states are written as a whole, also on a disk with faults, and a released daemon's folder is removed without space.
func TestFilesWithDiskFaults(t *testing.T) {
	t.Parallel()
	wanted := configuration{Name: "daemon", Visible: "GPU-1", ActiveThreadPercentage: 10}
	configure := func(p *Pods) error { return p.configure(wanted) }
	for name, operation := range map[string]struct {
		before, do func(p *Pods) error
		full       bool
	}{
		"configure": {nil, configure, false},
		"reconfigure": {configure, func(p *Pods) error {
			other := wanted
			other.ActiveThreadPercentage = 20
			return p.configure(other)
		}, false},
		"save a state": {configure, func(p *Pods) error {
			s := NewSupervisor(SupervisorConfig{Folder: p.folder(wanted.Name), Files: p.Files})
			return s.save()
		}, false},
		"release": {configure, func(p *Pods) error { return p.release(t.Context(), wanted.Name) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := disktest.TryFaults(t, func(d *disktest.Disk) disktest.Case {
				p := New(Config{Node: node, Namespace: namespace, Pod: "agent-1", Client: newCluster(t).client, Dir: d.Dir() + "/mps", Files: d})
				return disktest.Case{
					Before: func() error {
						if operation.before == nil {
							return nil
						}
						return operation.before(p)
					},
					Do: func() error { return operation.do(p) },
					State: func() (string, error) {
						if syncs := d.Syncs(); len(syncs) > 0 {
							t.Errorf("volatile files are synced: %v", syncs)
						}
						states, err := p.States()
						return fmt.Sprintf("%+v", states), err
					},
					Succeeds: func(f disktest.Fault) bool { return operation.full && disktest.IsFull(f) },
				}
			})
			t.Logf("%d faults", tried)
		})
	}
}
