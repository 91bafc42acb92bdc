package handover

import (
	"fmt"
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
)

// An agent starts on a full disk where one has run before: without it, no claim can be released. It is the newest also after one with a higher number.
func TestJoinOnFullDisk(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(t *testing.T, i *Instance){
		"closed": func(t *testing.T, i *Instance) {
			t.Helper()
			if err := i.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"killed": func(t *testing.T, i *Instance) { t.Helper(); i.die(t) },
	} {
		for _, next := range []string{"pod", "another"} {
			t.Run(name+", then "+next, func(t *testing.T) {
				t.Parallel()
				d := disktest.New(t, disktest.Folder(t))
				older, err := Join(d, d.Dir(), "older")
				if err != nil {
					t.Fatal(err)
				}
				former, err := Join(d, d.Dir(), "pod")
				if err != nil {
					t.Fatal(err)
				}
				ends(t, former)
				d.Full()
				again, err := Join(d, d.Dir(), next)
				if err != nil {
					t.Fatal(err)
				}
				if !newest(t, again) || newest(t, older) {
					t.Error("the agent that joined last is not the newest")
				}
			})
		}
	}
}

func TestJoinWithDiskFaults(t *testing.T) {
	t.Parallel()
	for _, former := range []bool{false, true} {
		tried := disktest.TryFaults(t, func(d *disktest.Disk) disktest.Case {
			var joined *Instance
			dir := d.Dir() + "/instances"
			return disktest.Case{
				Before: func() error {
					if !former {
						return nil
					}
					i, err := Join(d, dir, "former")
					if err != nil {
						return err
					}
					return i.file.Close()
				},
				Do: func() (err error) {
					joined, err = Join(d, dir, "pod")
					return err
				},
				State: func() (string, error) {
					is, err := joined.newest()
					return fmt.Sprint(is), err
				},
			}
		})
		t.Logf("%d faults", tried)
	}
}
