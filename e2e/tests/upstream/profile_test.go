package upstream

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// cpu is processor time by who used it.
type cpu struct {
	scheduler, process time.Duration
}

// schedulers are the packages whose frames make a stack the scheduler's. What both plugins call from
// elsewhere has such a frame below it.
var schedulers = []string{
	"k8s.io/kubernetes/pkg/scheduler.", "k8s.io/kubernetes/pkg/scheduler/",
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker.",
	"github.com/tessera-gpu/tessera/scheduler-plugin/",
}

// readProfile sums up a profile. The scheduler's part lacks its garbage collection, which is in no stack.
func readProfile(path string) (cpu, error) {
	file, err := os.Open(path)
	if err != nil {
		return cpu{}, err
	}
	defer file.Close() //nolint:errcheck // only read
	samples, err := profile.Parse(file)
	if err != nil {
		return cpu{}, err
	}
	var used cpu
	for _, sample := range samples.Sample {
		spent := time.Duration(sample.Value[1]) // the first value is the number of samples
		used.process += spent
		if slices.ContainsFunc(sample.Location, ofScheduler) {
			used.scheduler += spent
		}
	}
	return used, nil
}

func ofScheduler(location *profile.Location) bool {
	return slices.ContainsFunc(location.Line, func(line profile.Line) bool {
		return slices.ContainsFunc(schedulers, func(prefix string) bool { return strings.HasPrefix(line.Function.Name, prefix) })
	})
}
