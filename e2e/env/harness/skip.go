package harness

import (
	"testing"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// SkipOn136 skips a test that cannot pass with Kubernetes 1.36, if the environment selects that version.
func SkipOn136(tb testing.TB, reason string) {
	tb.Helper()
	version, err := binaries.KubernetesVersion()
	if err != nil {
		tb.Fatal(err)
	}
	if version == binaries.Kubernetes136 {
		tb.Skipf("Kubernetes %s: %s", version, reason)
	}
}
