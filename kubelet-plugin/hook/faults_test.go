package hook

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
)

// A disk with faults never leaves a program that is not whole at the path that Install returns. It is not synced, because a start replaces it.
func TestInstallWithDiskFaults(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(src, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, installed := range []bool{false, true} {
		tried := disktest.TryFaults(t, func(d *disktest.Disk) disktest.Case {
			var path string
			install := func() (err error) {
				path, err = Install(d, src, filepath.Join(d.Dir(), "hooks"))
				return err
			}
			return disktest.Case{
				Before: func() error {
					if !installed {
						return nil
					}
					return install()
				},
				Do: install,
				State: func() (string, error) {
					if syncs := d.Syncs(); len(syncs) > 0 {
						t.Errorf("volatile files are synced: %v", syncs)
					}
					text, err := os.ReadFile(path)
					return string(text), err
				},
			}
		})
		if installed != (tried == 0) {
			t.Errorf("installed before: %t: %d faults, and an installed program needs no call", installed, tried)
		}
	}
}
