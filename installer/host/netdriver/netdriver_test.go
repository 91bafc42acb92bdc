package netdriver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tessera-gpu/tessera/installer/host"
)

// machine is a host with one PCI device of a vendor.
func machine(t *testing.T, vendor string) Config {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "sys/bus/pci/devices/0000:3b:00.0/vendor"), vendor)
	return Config{
		Roots:   host.Roots{Host: root, Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys")},
		Timeout: 10 * time.Minute, Period: 5 * time.Second,
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestWaitsForTheNetworkDriver checks which event ends the wait: the file of a network driver container, or the module of the host's own driver.
func TestWaitsForTheNetworkDriver(t *testing.T) {
	container := func(t *testing.T, c Config) { write(t, filepath.Join(c.Roots.Host, readyFile), "") }
	own := func(t *testing.T, c Config) {
		write(t, filepath.Join(c.Roots.Proc, "modules"), "mlx5_core 1 0 - Live 0x0")
	}
	for _, c := range []struct {
		name, vendor string
		fromHost     bool
		event        func(*testing.T, Config)
		message      string
		reason       string
	}{
		{"no adapter", "0x10de", false, nil, "no Mellanox network adapter", ""},
		{"driver container", "0x15b3", false, container, "is loaded", ""},
		{"module of the kernel instead of a driver container", "0x15b3", false, own, "useHostMOFED", DriverMissing},
		{"the host's driver", "0x15b3", true, own, "is loaded", ""},
		{"driver container instead of the host's driver", "0x15b3", true, container, "mlx5_core", DriverMissing},
		{"nothing", "0x15b3", false, nil, "within 10m0s", DriverMissing},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := machine(t, c.vendor)
			config.FromHost = c.fromHost
			synctest.Test(t, func(t *testing.T) {
				if c.event != nil {
					time.AfterFunc(time.Minute, func() { c.event(t, config) })
				}
				got := config.Run(t.Context())
				if got.Reason != c.reason || got.Done != (c.reason == "") || !strings.Contains(got.Message, c.message) {
					t.Errorf("%+v, want reason %q and a message with %q", got, c.reason, c.message)
				}
			})
		})
	}
}
