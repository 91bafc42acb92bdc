package history

import (
	"flag"
	"os"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
)

var histories = flag.Int("histories", 200, "how many histories TestHistories runs")

// TestHistories runs some of the histories of `make bench-shares`.
func TestHistories(t *testing.T) {
	for _, controller := range []gpu.Limiter{gpu.LimitedByMisc, gpu.LimitedByDmem} {
		t.Run(string(controller), func(t *testing.T) {
			t.Parallel()
			var all Result
			for seed := range uint64(*histories) {
				folder, err := os.MkdirTemp("", "h") // short: paths of sockets have at most 107 characters
				if err != nil {
					t.Fatal(err)
				}
				result, err := Run(t.Context(), folder, controller, seed)
				if err != nil || len(result.Problems) > 0 {
					t.Fatalf("seed %d: %v, %q", seed, err, result.Problems)
				}
				all.Add(result)
				if err := os.RemoveAll(folder); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%+v", all)
			if all.Started == 0 || all.Refused == 0 || all.Killed == 0 || all.Resized == 0 || all.HooksKilled == 0 {
				t.Errorf("something did not happen: %+v", all)
			}
		})
	}
}
