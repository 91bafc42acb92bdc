package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The folders of the tests are two levels below the disk's: their parents are made, too.
const (
	claimsOfDisk = "plugin/claims"
	healthOfDisk = "plugin/health"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func storeOn(t *testing.T, d *disktest.Disk) *Store {
	t.Helper()
	s, err := Open(d, filepath.Join(d.Dir(), claimsOfDisk), func(string, error) {})
	must(t, err)
	return s
}

// viewRecords is what the next agent finds.
func viewRecords(dir string) (string, error) {
	s, err := Open(nil, filepath.Join(dir, claimsOfDisk), func(string, error) {})
	if err != nil {
		return "", err
	}
	var text []string
	for _, uid := range []string{"a", "b"} {
		r, err := s.Load(uid)
		var unreadable *prepare.UnreadableRecord
		switch {
		case err == nil:
			text = append(text, fmt.Sprintf("%s %s on %s", uid, r.State, r.Wanted[0].Device))
		case errors.As(err, &unreadable):
			text = append(text, uid+" unreadable")
		case !errors.Is(err, prepare.ErrNoRecord):
			return "", err
		}
	}
	records, err := s.List()
	return fmt.Sprintf("%s of %d records", strings.Join(text, ", "), len(records)), err
}

// damageOnDisk replaces the record with a damaged one.
func damageOnDisk(t *testing.T, d *disktest.Disk, uid string) {
	t.Helper()
	path := filepath.Join(d.Dir(), claimsOfDisk, uid+suffix)
	must(t, atomicfile.Write(path, []byte("damaged"), atomicfile.Options{Mode: 0o600, SingleWriter: true, Volatile: true, Files: d}))
}

// A record is on the disk when Save returns, and gone when Delete returns, whatever a power failure does with what was not synced. Each sync is needed.
func TestRecordsSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	sites := disktest.MutateSyncs(t, func(d *disktest.Disk) {
		s := storeOn(t, d)
		do := func(err error) {
			t.Helper()
			must(t, err)
			d.Returned()
		}
		leaving := whole("a", "gpu-0")
		leaving.State = prepare.StateUnpreparing
		do(s.Save(whole("a", "gpu-0")))
		do(s.Save(whole("b", "gpu-1")))
		do(s.Save(leaving))
		do(s.Delete("a"))
		damageOnDisk(t, d, "b")
		if _, err := s.Load("b"); err == nil {
			t.Error("a damaged record was loaded")
		}
		do(s.Save(whole("b", "gpu-2")))
		do(s.Delete("b"))
	}, viewRecords)
	if !slices.ContainsFunc(sites, func(site string) bool { return strings.Contains(site, "store.go") }) {
		t.Errorf("the store does not sync: %v", sites)
	}
}

func TestRecordsWithDiskFaults(t *testing.T) {
	t.Parallel()
	for name, operation := range map[string]struct {
		before, do func(s *Store) error
		// full is set for an operation that needs no space.
		full bool
	}{
		"open": {before: nil, do: func(*Store) error { return nil }},
		"save": {do: func(s *Store) error { return s.Save(whole("a", "gpu-0")) }},
		"save again": {
			before: func(s *Store) error { return s.Save(whole("a", "gpu-0")) },
			do:     func(s *Store) error { return s.Save(whole("a", "gpu-1")) },
		},
		"delete": {
			before: func(s *Store) error { return s.Save(whole("a", "gpu-0")) },
			do:     func(s *Store) error { return s.Delete("a") }, full: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := disktest.TryFaults(t, func(d *disktest.Disk) disktest.Case {
				var s *Store
				open := func() (err error) {
					s, err = Open(d, filepath.Join(d.Dir(), claimsOfDisk), func(path string, err error) { t.Errorf("%s: %v", path, err) })
					return err
				}
				return disktest.Case{
					Before: func() error {
						if operation.before == nil {
							return nil
						}
						return errors.Join(open(), operation.before(s))
					},
					Do: func() error {
						if err := open(); err != nil {
							return err
						}
						return operation.do(s)
					},
					State:    func() (string, error) { return viewRecords(d.Dir()) },
					Succeeds: func(f disktest.Fault) bool { return operation.full && disktest.IsFull(f) },
				}
			})
			t.Logf("%d faults", tried)
		})
	}
}

func healthOn(t *testing.T, d *disktest.Disk) *Health {
	t.Helper()
	h, err := OpenHealth(d, filepath.Join(d.Dir(), healthOfDisk), func(string, error) {})
	must(t, err)
	return h
}

func viewHealth(dir string) (string, error) {
	h, err := OpenHealth(nil, filepath.Join(dir, healthOfDisk), func(string, error) {})
	if err != nil {
		return "", err
	}
	health, err := h.LoadHealth()
	return fmt.Sprintf("%s with %d faults", health.Boot, len(health.Faults)), err
}

func save(h *Health, boot string, faults ...gpu.Fault) error {
	saved, err := h.SaveHealth(gpu.Health{Boot: boot, Faults: faults}, func() bool { return true })
	if err == nil && !saved {
		return errors.New("not saved")
	}
	return err
}

func xid(name string) gpu.Fault {
	return gpu.Fault{GPU: name, Signal: gpu.SignalXID, XID: 79, Severity: gpu.Fatal}
}

func TestHealthSurvivesPowerFailures(t *testing.T) {
	t.Parallel()
	disktest.MutateSyncs(t, func(d *disktest.Disk) {
		h := healthOn(t, d)
		must(t, save(h, "first", xid("gpu-0")))
		d.Returned()
		must(t, save(h, "first", xid("gpu-0"), xid("gpu-1")))
		d.Returned()
		must(t, save(h, "second"))
		d.Returned()
	}, viewHealth)
}

func TestHealthWithDiskFaults(t *testing.T) {
	t.Parallel()
	for _, exists := range []bool{false, true} {
		tried := disktest.TryFaults(t, func(d *disktest.Disk) disktest.Case {
			return disktest.Case{
				Before: func() error {
					if !exists {
						return nil
					}
					return save(healthOn(t, d), "first", xid("gpu-0"))
				},
				Do: func() error {
					h, err := OpenHealth(d, filepath.Join(d.Dir(), healthOfDisk), func(path string, err error) { t.Errorf("%s: %v", path, err) })
					if err != nil {
						return err
					}
					return save(h, "second", xid("gpu-1"))
				},
				State: func() (string, error) { return viewHealth(d.Dir()) },
			}
		})
		t.Logf("%d faults", tried)
	}
}
