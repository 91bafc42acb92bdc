package rollout

import (
	"testing"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// BenchmarkNext measures Next for a fleet of 5,000 nodes that all must change.
func BenchmarkNext(b *testing.B) {
	h := newHistory(v1alpha1.UpgradePolicy{}, 5000)
	h.want("new")
	for b.Loop() {
		Next(h.Fleet)
	}
}
