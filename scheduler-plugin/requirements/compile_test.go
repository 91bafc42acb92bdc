package requirements

import (
	"fmt"
	"testing"
)

// BenchmarkCompile measures the compilation of a selector, for which compileSteps are taken from a budget.
func BenchmarkCompile(b *testing.B) {
	for i := 0; b.Loop(); i++ {
		if _, err := newSelector(fmt.Sprintf(`device.attributes["gpu.tessera.dev"].index != %d || device.attributes["gpu.tessera.dev"].migStart != 3`, i)); err != nil {
			b.Fatal(err)
		}
	}
}
