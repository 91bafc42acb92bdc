package upstream

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// progress is where people look.
var progress io.Writer = os.Stdout

// BenchmarkUpstream runs every workload that upstream labels short. The allocators are those a real
// scheduler chooses from; upstream's own runs restrict them.
func BenchmarkUpstream(b *testing.B) {
	started := time.Now()
	suites, err := copySuites(b.Context(), filepath.Join(b.TempDir(), "dra"), replaceInTree)
	if err != nil {
		b.Fatal(err)
	}
	perf.PerfSchedulingLabelFilter = "short"
	r := &round{}
	for _, s := range suites {
		for _, w := range s.workloads {
			if slices.Contains(w.labels, "short") {
				r.expected++
			}
		}
	}
	for _, s := range suites {
		b.Run(s.topic, func(b *testing.B) {
			b.Chdir(s.dir)
			perf.RunBenchmarkPerfScheduling(b, casesFile, s.topic, registry(&r.counts),
				perf.WithPreRunFn(r.watch), perf.WithPrepareFn(r.check), perf.WithPodsSchedulingTimeout(2*time.Minute))
		})
	}
	passed := r.passed()
	printf("%d of %d short workloads in %d folders passed, %s", passed, r.expected, len(suites), time.Since(started).Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(inapplicable)) {
		printf("not applicable: %s: %s", name, inapplicable[name])
	}
	if len(inapplicable) == 0 {
		printf("not applicable: none")
	}
	if passed != r.expected || len(r.tests) != r.expected {
		b.Fatalf("%d workloads ran and %d passed of %d", len(r.tests), passed, r.expected)
	}
}

// round is one run over all workloads, one after the other.
type round struct {
	counts   counts
	expected int
	tests    []interface{ Failed() bool }
}

// watch reports when a workload starts and how it ended.
func (r *round) watch(tCtx ktesting.TContext, _ *perf.Workload) (func(), error) {
	r.tests = append(r.tests, tCtx.TB())
	number, started := len(r.tests), time.Now()
	name := strings.TrimPrefix(tCtx.Name(), "BenchmarkUpstream/")
	printf("[%2d/%d] %s", number, r.expected, name)
	r.counts.filter.Store(0)
	r.counts.reserve.Store(0)
	return func() {
		verdict := "ok"
		if tCtx.TB().Failed() {
			verdict = "FAILED"
		}
		printf("[%2d/%d] %s: %s, %s, %d nodes let through, %d reservations", number, r.expected, name, verdict,
			time.Since(started).Round(100*time.Millisecond), r.counts.filter.Load(), r.counts.reserve.Load())
	}, nil
}

// check looks at the cluster when a workload has ended, before the cluster ends too.
func (r *round) check(tCtx ktesting.TContext) error {
	tCtx.TB().Cleanup(func() {
		allocated, err := checkAllocations(tCtx, tCtx.Client())
		if err != nil {
			tCtx.TB().Error(err)
			return
		}
		if allocated == 0 {
			tCtx.TB().Error("no claim is allocated")
		}
		if r.counts.filter.Load() == 0 || r.counts.reserve.Load() == 0 {
			tCtx.TB().Error("our plugin has decided nothing")
		}
	})
	return nil
}

// passed counts the workloads that ended well, which is known only now: upstream looks for leaks last.
func (r *round) passed() int {
	passed := 0
	for _, test := range r.tests {
		if !test.Failed() {
			passed++
		}
	}
	return passed
}

func printf(format string, args ...any) {
	fmt.Fprintf(progress, format+"\n", args...) //nolint:errcheck // progress is for the eye
}
