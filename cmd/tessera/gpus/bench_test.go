package gpus

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// BenchmarkRedraw is the cost of a change with --watch in a cluster of 1,000 nodes with 8 GPUs each: the list is built from the caches and compared with the
// former one. The pause after it is four times as long.
func BenchmarkRedraw(b *testing.B) {
	s := clustertest.New(b)
	for i := range 1000 {
		s.Node(fmt.Sprintf("node-%04d", i), "h100x8", nil)
	}
	watched, _, stop := s.Cluster().Watched(b.Context())
	defer stop()
	r := request{answer: output.Flags{Format: output.Text, Watch: true}, now: func() time.Time { return clustertest.Now }}
	printer, err := r.answer.Printer(io.Discard, io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	redraw := func() {
		result, err := r.load(b.Context(), watched)
		if err != nil {
			b.Fatal(err)
		}
		if err := printer.Print(result); err != nil {
			b.Fatal(err)
		}
	}
	redraw() // fills the caches
	b.ReportAllocs()
	for b.Loop() {
		redraw()
	}
}
