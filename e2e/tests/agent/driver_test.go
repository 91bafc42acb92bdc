package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	nvidia "github.com/tessera-gpu/tessera/e2e/tests/driver"
)

// TestNVIDIAsLibrary: an agent over NVIDIA's own libnvidia-ml, without a kernel module, reports that and waits; when a driver arrives, it publishes the GPUs.
func TestNVIDIAsLibrary(t *testing.T) {
	nvidia.Each(t, func(t *testing.T, root nvidia.Root) {
		n := newNode(t, "h100x2")
		library, err := filepath.EvalSymlinks(fakegpu.Library(n.machine()))
		n.must(err)
		text, err := os.ReadFile(root.Library("libnvidia-ml"))
		n.must(err)
		aside := library + ".aside"
		n.must(os.Rename(library, aside))
		n.must(os.WriteFile(library, text, 0o755))
		i := newInstaller(n)
		i.create()
		n.run()
		i.eventually("the agent reports what NVIDIA's library answers", func(ctx context.Context) error {
			s, err := i.agent(ctx)
			if err != nil || s.DriverVersion != "" || !strings.Contains(s.Message, "Driver Not Loaded (9)") {
				return fmt.Errorf("driver %q, message %q, %w", s.DriverVersion, s.Message, err)
			}
			return nil
		})
		n.must(os.Rename(aside, library))
		i.eventually("the agent notices the driver", func(ctx context.Context) error {
			s, err := i.agent(ctx)
			if err != nil || !s.Ready || s.DriverVersion == "" || s.Message != "" {
				return fmt.Errorf("ready %t, driver %q, message %q, %w", s.Ready, s.DriverVersion, s.Message, err)
			}
			return nil
		})
	})
}
