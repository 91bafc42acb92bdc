package upstream

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	kubeschedulerconfigv1 "k8s.io/kube-scheduler/config/v1"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

var (
	compareOut       = flag.String("compare-out", "", "BenchmarkCompare appends its results to this file, a line of JSON each")
	compareWorkloads = flag.String("compare-workloads", "^Partitionable(Backtracking)?/(half|full)_500nodes$", "BenchmarkCompare runs the workloads that match, as case/workload")
)

// Outcome is how one workload went with one plugin.
type Outcome struct {
	Case            string  `json:"case"` // case/workload
	Plugin          string  `json:"plugin"`
	Pods            uint64  `json:"pods"`
	PodsPerSecond   float64 `json:"podsPerSecond"`
	AttemptMeanMS   float64 `json:"attemptMeanMS"`
	AttemptP99MS    float64 `json:"attemptP99MS"`
	AlgorithmMeanMS float64 `json:"algorithmMeanMS"`
	// CPUSecondsPerPod is what the scheduler burns, by samples; ProcessCPUSecondsPerPod has the API server,
	// the clients and the collection of garbage in it, as they share the process.
	CPUSecondsPerPod        float64 `json:"cpuSecondsPerPod"`
	ProcessCPUSecondsPerPod float64 `json:"processCPUSecondsPerPod"`
	HeapMiB                 float64 `json:"heapMiB"` // in use, of the whole process, median
}

// BenchmarkCompare runs upstream's own measurements with the in-tree plugin and with ours, one after the other.
func BenchmarkCompare(b *testing.B) {
	wanted, err := regexp.Compile(*compareWorkloads)
	if err != nil {
		b.Fatal(err)
	}
	out := *compareOut
	if out != "" { // the working folder changes
		if out, err = filepath.Abs(out); err != nil {
			b.Fatal(err)
		}
	}
	perf.PerfSchedulingLabelFilter = ""
	if err := flag.Set("perf-cpuprofile", "true"); err != nil {
		b.Fatal(err)
	}
	rivals := []rival{
		{name: inTree, rewrite: func(*kubeschedulerconfigv1.KubeSchedulerConfiguration) {}},
		{name: plugin.Name, rewrite: replaceInTree},
	}
	for i, r := range rivals {
		if rivals[i].suites, err = copySuites(b.Context(), filepath.Join(b.TempDir(), r.name), r.rewrite); err != nil {
			b.Fatal(err)
		}
	}
	for i, s := range rivals[0].suites {
		for _, w := range s.workloads {
			if !wanted.MatchString(w.name) {
				continue
			}
			for _, r := range rivals {
				b.Run(r.name, func(b *testing.B) {
					outcome := measure(b, r.name, r.suites[i], w.name)
					if err := outcome.write(out); err != nil {
						b.Fatal(err)
					}
				})
			}
		}
	}
}

// rival is a plugin with its own copy of the cases.
type rival struct {
	name    string
	rewrite func(*kubeschedulerconfigv1.KubeSchedulerConfiguration)
	suites  []suite
}

// measure runs one workload with one plugin.
func measure(b *testing.B, name string, s suite, workload string) Outcome {
	b.Chdir(s.dir)
	if err := s.only(workload); err != nil {
		b.Fatal(err)
	}
	results := filepath.Join(b.TempDir(), "results")
	if err := flag.Set("data-items-dir", results); err != nil {
		b.Fatal(err)
	}
	printf("%s with %s", workload, name)
	started, outcome := time.Now(), Outcome{Case: workload, Plugin: name}
	perf.RunBenchmarkPerfScheduling(b, casesFile, s.topic, registry(&counts{}), perf.WithPrepareFn(func(tCtx ktesting.TContext) error {
		tCtx.TB().Cleanup(func() {
			if err := outcome.readMetrics(); err != nil {
				tCtx.TB().Error(err)
			}
		})
		return nil
	}))
	if b.Failed() {
		b.FailNow()
	}
	if err := outcome.readResults(results); err != nil {
		b.Fatal(err)
	}
	printf("%s with %s: %.1f pods/s, attempt %.2f ms, algorithm %.2f ms, scheduler's CPU %.2f ms per pod, %s", workload, name, outcome.PodsPerSecond,
		outcome.AttemptMeanMS, outcome.AlgorithmMeanMS, 1000*outcome.CPUSecondsPerPod, time.Since(started).Round(time.Second))
	return outcome
}

// only leaves one workload in the copy of a suite.
func (s suite) only(workload string) error {
	path := filepath.Join(s.dir, casesFile)
	text, err := os.ReadFile(path + ".all")
	if os.IsNotExist(err) {
		if err := os.Rename(path, path+".all"); err != nil {
			return err
		}
		text, err = os.ReadFile(path + ".all")
	}
	if err != nil {
		return err
	}
	var cases, kept []map[string]any
	if err := yaml.Unmarshal(text, &cases); err != nil {
		return err
	}
	for _, c := range cases {
		for _, w := range c["workloads"].([]any) {
			if fmt.Sprintf("%v/%v", c["name"], w.(map[string]any)["name"]) == workload {
				c["workloads"] = []any{w}
				kept = append(kept, c)
			}
		}
	}
	if text, err = yaml.Marshal(kept); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// readMetrics reads the scheduler's own metrics before upstream resets them. Only measured pods are in them:
// those that fill the cluster beforehand are allocated by upstream itself.
func (o *Outcome) readMetrics() error {
	const attempts, algorithm = "scheduler_scheduling_attempt_duration_seconds", "scheduler_scheduling_algorithm_duration_seconds"
	gathered, err := testutil.GatherMetrics(legacyregistry.DefaultGatherer)
	if err != nil {
		return fmt.Errorf("gather metrics: %w", err)
	}
	scheduled, err := gathered.GetHistogramVec(attempts, map[string]string{"result": "scheduled"})
	if err != nil {
		return fmt.Errorf("read %s: %w", attempts, err)
	}
	o.Pods = scheduled.GetAggregatedSampleCount()
	o.AttemptMeanMS = 1000 * scheduled.Average()
	o.AttemptP99MS = 1000 * scheduled.Quantile(0.99)
	decided, err := gathered.GetHistogramVec(algorithm, nil)
	if err != nil {
		return fmt.Errorf("read %s: %w", algorithm, err)
	}
	o.AlgorithmMeanMS = 1000 * decided.Average()
	return nil
}

// readResults reads what upstream has written: its figures and its profile of the measured time.
func (o *Outcome) readResults(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("find the results in %s: %d files, %w", dir, len(files), err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	var items perf.DataItems
	if err := json.Unmarshal(text, &items); err != nil {
		return fmt.Errorf("read %s: %w", files[0], err)
	}
	for _, item := range items.DataItems {
		switch item.Labels["Metric"] {
		case "SchedulingThroughput":
			o.PodsPerSecond = item.Data["Average"]
		case "heap_memory_usage":
			o.HeapMiB = item.Data["Perc50"]
		}
	}
	profiles, err := filepath.Glob(filepath.Join(dir, "*-cpu.prof"))
	if err != nil || len(profiles) != 1 {
		return fmt.Errorf("find the profile in %s: %d files, %w", dir, len(profiles), err)
	}
	used, err := readProfile(profiles[0])
	if err != nil {
		return fmt.Errorf("read %s: %w", profiles[0], err)
	}
	pods := float64(max(o.Pods, 1))
	o.CPUSecondsPerPod = used.scheduler.Seconds() / pods
	o.ProcessCPUSecondsPerPod = used.process.Seconds() / pods
	return nil
}

// write appends the outcome to a file, if there is one.
func (o *Outcome) write(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // Encode has written everything
	return json.NewEncoder(file).Encode(o)
}
