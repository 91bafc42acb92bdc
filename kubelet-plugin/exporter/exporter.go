package exporter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Hardware measures GPUs.
type Hardware interface {
	// Measure reads one GPU. Values that cannot be read are left out and reported in the error; one that wraps gpu.ErrLost or gpu.ErrNoDriver
	// means that the GPU does not respond. It may hang.
	Measure(ctx context.Context, gpuName string) (gpu.Measurement, error)
}

// Inventory returns the node.
type Inventory interface {
	Node() gpu.Node
}

// Records are the records of claims on the node.
type Records interface {
	List() ([]prepare.Record, error)
}

// Pods lists the containers that use claims.
type Pods interface {
	Containers(ctx context.Context) ([]Container, error)
}

// Limits reads what containers with a limit of GPU memory have allocated.
type Limits interface {
	// Usages may hang. Containers that cannot be read are left out and reported in the error.
	Usages(ctx context.Context) ([]limiter.Usage, error)
}

// Config has the dependencies and settings of an Exporter. Fields without a default are required.
type Config struct {
	// Node is the name of the Kubernetes node.
	Node      string
	Hardware  Hardware
	Inventory Inventory
	Records   Records
	Pods      Pods
	// Limits is nil on a node whose driver is not NVIDIA's.
	Limits Limits
	// Leads reports whether this agent leads: only the leading agent exports metrics of devices, so that sums stay correct during an upgrade.
	Leads func() bool
	// MaxAge is how long a reading is used for further scrapes; 1 s by default.
	MaxAge time.Duration
	// Timeout limits the queries of a GPU and of kubelet; 3 s by default, less than the scrape timeout of Prometheus. A query that hangs delays
	// only the scrape that started it.
	Timeout time.Duration
}

// Exporter is a prometheus.Collector. It is safe for concurrent use; nothing happens between scrapes.
type Exporter struct {
	config    Config
	measure   func(gpuName string) func() (gpu.Measurement, error)
	pods      cachedQuery[[]Container]
	limits    cachedQuery[[]limiter.Usage]
	measured  []measured
	descs     inventoryDescs
	failures  *prometheus.CounterVec
	durations prometheus.Histogram

	mu sync.Mutex
	// readings are the queries of GPUs by name.
	readings map[string]*cachedQuery[gpu.Measurement]
	// lastPods is the last successful result of kubelet.
	lastPods result[[]Container]
}

// The sources of errors; those of hardware are counted by GPU.
const (
	ofHardware = "hardware"
	ofKubelet  = "kubelet"
	ofRecords  = "records"
	ofLimits   = "limits"
)

// New returns an exporter. Its queries are canceled with ctx.
func New(ctx context.Context, c Config) *Exporter {
	if c.MaxAge == 0 {
		c.MaxAge = time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 3 * time.Second
	}
	d := describer{c.Node}
	e := &Exporter{
		config: c, measured: d.measured(), descs: d.inventoryDescs(), readings: map[string]*cachedQuery[gpu.Measurement]{},
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tessera_exporter_errors_total", Help: "Failed or timed out reads of a GPU, of kubelet's list of pods, of the claim records or of the limits of containers.",
			ConstLabels: prometheus.Labels{"node": c.Node},
		}, []string{"source", "gpu", "reason"}),
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tessera_exporter_read_duration_seconds", Help: "Time to read one GPU, in seconds.",
			ConstLabels: prometheus.Labels{"node": c.Node}, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
	}
	e.measure = func(gpuName string) func() (gpu.Measurement, error) {
		return func() (gpu.Measurement, error) {
			begin := time.Now()
			defer func() { e.durations.Observe(time.Since(begin).Seconds()) }()
			return c.Hardware.Measure(ctx, gpuName)
		}
	}
	e.pods = cachedQuery[[]Container]{maxAge: c.MaxAge, timeout: c.Timeout, query: func() ([]Container, error) {
		limited, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		return c.Pods.Containers(limited)
	}}
	e.limits = cachedQuery[[]limiter.Usage]{maxAge: c.MaxAge, timeout: c.Timeout, query: func() ([]limiter.Usage, error) {
		if c.Limits == nil {
			return nil, nil
		}
		return c.Limits.Usages(ctx)
	}}
	for _, source := range []string{ofKubelet, ofRecords, ofLimits} {
		e.failures.WithLabelValues(source, "", errorReason(nil))
	}
	return e
}

// Describe implements prometheus.Collector.
func (e *Exporter) Describe(out chan<- *prometheus.Desc) {
	for _, m := range e.measured {
		out <- m.gpu
		out <- m.part
	}
	f := e.descs
	for _, desc := range []*prometheus.Desc{f.info, f.up, f.held, f.health, f.claims, f.slices, f.room, f.promised, f.pod, f.mappingAge, f.limit, f.used, f.refused} {
		out <- desc
	}
	e.failures.Describe(out)
	e.durations.Describe(out)
}

// Collect implements prometheus.Collector.
func (e *Exporter) Collect(out chan<- prometheus.Metric) {
	if e.config.Leads() {
		e.collect(sink{out})
	}
	e.failures.Collect(out)
	e.durations.Collect(out)
}

// collect sends the series of the node's devices.
func (e *Exporter) collect(s sink) {
	node := e.config.Inventory.Node()
	readings := e.read(node)
	records, err := e.config.Records.List()
	e.countError(ofRecords, "", err)
	pods := e.podMapping()
	if !pods.at.IsZero() {
		s.gauge(e.descs.mappingAge, time.Since(pods.at).Seconds())
	}
	e.collectLimits(s, node)
	for _, c := range cards(node, allocationsOf(records, pods.value)) {
		e.collectInventory(s, node, c)
		reading := readings[c.gpu]
		e.countError(ofHardware, c.gpu, reading.err)
		answered := !c.Lost && !notResponding(reading.err)
		s.gauge(e.descs.up, boolValue(answered), c.gpu, c.uuid, c.product)
		if answered {
			e.collectMeasurement(s, c, reading.value)
		}
	}
}

// read returns the readings of all GPUs by name; the error of a late one is errTimeout. A lost GPU is not queried.
func (e *Exporter) read(node gpu.Node) map[string]result[gpu.Measurement] {
	e.mu.Lock()
	queries := map[string]*cachedQuery[gpu.Measurement]{}
	for _, g := range node.GPUs {
		name := g.Name()
		if e.readings[name] == nil {
			e.readings[name] = &cachedQuery[gpu.Measurement]{maxAge: e.config.MaxAge, timeout: e.config.Timeout, query: e.measure(name)}
		}
		if !g.Lost {
			queries[name] = e.readings[name]
		}
	}
	e.mu.Unlock()
	for _, reading := range queries {
		reading.start()
	}
	all := map[string]result[gpu.Measurement]{}
	for name, reading := range queries {
		all[name] = reading.get()
	}
	return all
}

// podMapping returns the list of kubelet, or the last successful one: while kubelet does not respond, no pods start or end, and claims that are
// released are removed from the records.
func (e *Exporter) podMapping() result[[]Container] {
	now := e.pods.get()
	e.countError(ofKubelet, "", now.err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.err == nil {
		e.lastPods = now
	}
	return e.lastPods
}

// countError counts an error; without one it only creates the series.
func (e *Exporter) countError(source, gpuName string, err error) {
	counter := e.failures.WithLabelValues(source, gpuName, errorReason(err))
	if err != nil {
		counter.Inc()
	}
}

// notResponding reports whether the error means that a GPU does not respond.
func notResponding(err error) bool {
	return errors.Is(err, errTimeout) || errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrNoDriver)
}

// errorReason returns the value of the label reason.
func errorReason(err error) string {
	switch {
	case errors.Is(err, errTimeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, gpu.ErrLost):
		return "lost"
	case errors.Is(err, gpu.ErrNoDriver):
		return "no_driver"
	}
	return "error"
}
