package toolkit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
)

// viewConfiguration is what containerd and the next run of the verb find: the configuration, the drop-in and the copy of the former configuration.
func viewConfiguration(dir string) (string, error) {
	var text []string
	for _, path := range []string{main, "/etc/containerd/conf.d/" + dropIn, main + kept} {
		content, err := os.ReadFile(filepath.Join(dir, path))
		if errors.Is(err, os.ErrNotExist) {
			content = []byte("absent")
		} else if err != nil {
			return "", err
		}
		text = append(text, fmt.Sprintf("%s: %q", filepath.Base(path), content))
	}
	return strings.Join(text, "\n"), nil
}

// A power failure during a change of containerd's configuration leaves whole files, of which the main one is never changed without its copy, and a
// change that was reported stays. Each sync of the toolkit is needed.
func TestConfigurationSurvivesPowerFailures(t *testing.T) {
	t.Parallel()
	roots := map[string]map[string]string{"configured": {main: usual}, "empty": nil}
	sites := disktest.MutateSyncs(t, func(d *disktest.Disk) {
		for root, files := range roots {
			c, _ := nodeOn(t, d, filepath.Join(d.Dir(), root), main, files)
			d.Returned()
			if result, _ := c.Once(t.Context()); !result.Done {
				t.Error(result)
			}
			d.Returned()
			if result := c.Remove(); !result.Done {
				t.Error(result)
			}
			d.Returned()
		}
	}, func(dir string) (string, error) {
		configured, err := viewConfiguration(filepath.Join(dir, "configured"))
		empty, other := viewConfiguration(filepath.Join(dir, "empty"))
		return configured + "\n" + empty, errors.Join(err, other)
	})
	if !slices.ContainsFunc(sites, func(site string) bool { return strings.Contains(site, "write.go") }) {
		t.Errorf("the toolkit does not sync: %v", sites)
	}
}

func TestConfigurationWithDiskFaults(t *testing.T) {
	t.Parallel()
	for name, operation := range map[string]struct {
		before, do func(c Config) error
	}{
		"configure": {
			func(Config) error { return nil },
			func(c Config) error { _, _, _, err := c.once(t.Context()); return err },
		},
		"remove": {
			func(c Config) error { _, _, _, err := c.once(t.Context()); return err },
			func(c Config) error {
				plan, err := Unmake(c.files(), c.Main)
				if err != nil {
					return err
				}
				return c.write(plan)
			},
		},
		"record a failed restart": {
			func(Config) error { return nil },
			func(c Config) error { return c.remember("id") },
		},
		"delete the record of a failed restart": {
			func(c Config) error { return c.remember("id") },
			Config.deleteFailure,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := disktest.TryFaults(t, func(d *disktest.Disk) disktest.Case {
				c, _ := nodeOn(t, d, d.Dir(), main, map[string]string{main: usual})
				return disktest.Case{
					Before: func() error { return operation.before(c) },
					Do:     func() error { return operation.do(c) },
					State: func() (string, error) {
						text, err := viewConfiguration(d.Dir())
						return fmt.Sprintf("%s\nfailed: %t", text, c.hasFailed("id")), err
					},
				}
			})
			t.Logf("%d faults", tried)
		})
	}
}
