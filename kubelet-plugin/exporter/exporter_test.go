package exporter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// scene is a node with all dependencies of an exporter.
type scene struct {
	mu       sync.Mutex
	node     gpu.Node
	records  []prepare.Record
	pods     []Container
	podsErr  error
	measured map[string]gpu.Measurement
	errs     map[string]error
	hangs    map[string]bool
	follows  bool
	usages   []limiter.Usage
}

func (s *scene) Usages(context.Context) ([]limiter.Usage, error) { return s.usages, nil }

func (s *scene) Node() gpu.Node                                  { return s.node }
func (s *scene) List() ([]prepare.Record, error)                 { return s.records, nil }
func (s *scene) Containers(context.Context) ([]Container, error) { return s.pods, s.podsErr }

func (s *scene) Measure(ctx context.Context, name string) (gpu.Measurement, error) {
	s.mu.Lock()
	hangs := s.hangs[name]
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	return s.measured[name], s.errs[name]
}

// newScene has a node with two H100: two claims share the first one by time-slicing; on the second, a claim that two
// containers of a pod use holds a MIG device, and there is a foreign one.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{node: gputest.Node(t, "h100x2"), measured: map[string]gpu.Measurement{}, errs: map[string]error{}, hangs: map[string]bool{}}
	first, second := s.node.GPUs[0].Name(), s.node.GPUs[1].Name()
	small := s.node.GPUs[1].Geometry.Placements(19)
	mine := gpu.Instance{GPU: second, Placement: small[0], GI: 7, UUID: "MIG-1"}
	stranger := gpu.Instance{GPU: second, Placement: small[3], UUID: "MIG-2"}
	s.node.GPUs[1].Mode, s.node.GPUs[1].Instances = gpu.ModeEnabled, []gpu.Instance{mine, stranger}
	s.node.GPUs[1].Withheld = stranger.Placement.Mask()

	share := func(uid, id string, bytes uint64) prepare.Record {
		return prepare.Record{Ref: prepare.Ref{UID: uid, Namespace: "team", Name: uid}, State: prepare.StatePrepared, Wanted: []prepare.Wanted{{
			Result: prepare.Result{Request: "r", Pool: "p", Device: "shared", ShareID: id},
			Use:    gpu.Device{GPU: first, Use: gpu.Use{Shape: gpu.TimeShare, Share: gpu.Share{MemoryBytes: bytes, Shares: 1}}},
		}}}
	}
	s.records = []prepare.Record{
		share("one", "s1", 10<<30), share("two", "s2", 20<<30),
		{
			Ref: prepare.Ref{UID: "sliced", Namespace: "other", Name: "sliced"}, State: prepare.StatePrepared, Instances: []gpu.Instance{mine},
			Wanted: []prepare.Wanted{
				{Result: prepare.Result{Request: "r", Pool: "p", Device: "slice"}, Use: gpu.Device{GPU: second, Use: gpu.Use{Shape: gpu.MIG, Placement: small[0]}}},
				{Result: prepare.Result{Request: "m", Pool: "p", Device: "monitor"}, Admin: true, Use: gpu.Device{GPU: first, Use: gpu.Use{Shape: gpu.Monitor}}},
			},
		},
	}
	s.pods = []Container{
		{"team", "a", "main", "one", "p", "shared", "s1"}, {"team", "b", "main", "two", "p", "shared", "s2"},
		{"other", "c", "main", "sliced", "p", "slice", ""}, {"other", "c", "side", "sliced", "p", "slice", ""},
	}
	s.measured[first] = gpu.Measurement{GPU: gpu.Telemetry{gpu.Utilization: 0.5, gpu.MemoryUsed: 7, gpu.RemapFailed: 0}}
	s.measured[second] = gpu.Measurement{
		GPU:       gpu.Telemetry{gpu.MemoryUsed: 9, gpu.UncorrectedErrors: 2},
		Instances: map[string]gpu.Telemetry{"MIG-1": {gpu.MemoryUsed: 3, gpu.UncorrectedErrors: 1}, "MIG-2": {gpu.MemoryUsed: 4}, "MIG-just-made": {gpu.MemoryUsed: 5}},
	}
	return s
}

// exporter returns an exporter of the scene, whose registry checks the series against Describe.
func (s *scene) exporter(ctx context.Context) *prometheus.Registry {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(ctx, Config{Node: "n", Hardware: s, Inventory: s, Records: s, Pods: s, Limits: s, Leads: func() bool { return !s.follows }}))
	return registry
}

// compare checks the series of the metrics; want has GPU0, UUID0 and so on for the GPUs' names.
func (s *scene) compare(t *testing.T, registry *prometheus.Registry, want string, metrics ...string) {
	t.Helper()
	var replace []string
	for i, g := range s.node.GPUs {
		replace = append(replace, fmt.Sprintf("GPU%d", i), g.Name(), fmt.Sprintf("UUID%d", i), g.UUID)
	}
	want = strings.NewReplacer(append(replace, "PRODUCT", s.node.GPUs[0].Product)...).Replace(want)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), metrics...); err != nil {
		t.Error(err)
	}
}

func TestExporter(t *testing.T) {
	s := newScene(t)
	s.compare(t, s.exporter(t.Context()), `
# HELP tessera_gpu_utilization_ratio Ratio of the driver's last sample period, at most one second, in which a kernel ran. Absent while the GPU is partitioned into MIG devices.
# TYPE tessera_gpu_utilization_ratio gauge
tessera_gpu_utilization_ratio{claim="",container="",gpu="GPU0",namespace="team",node="n",pod="",product="PRODUCT",shape="timeshare",uuid="UUID0"} 0.5
# HELP tessera_gpu_memory_used_bytes Allocated device memory, excluding memory reserved by the driver, in bytes.
# TYPE tessera_gpu_memory_used_bytes gauge
tessera_gpu_memory_used_bytes{claim="",container="",gpu="GPU0",namespace="team",node="n",pod="",product="PRODUCT",shape="timeshare",uuid="UUID0"} 7
tessera_gpu_memory_used_bytes{claim="",container="",gpu="GPU1",namespace="",node="n",pod="",product="PRODUCT",shape="mig",uuid="UUID1"} 9
# HELP tessera_gpu_ecc_errors_total ECC memory errors since the driver was loaded.
# TYPE tessera_gpu_ecc_errors_total counter
tessera_gpu_ecc_errors_total{claim="",container="",gpu="GPU1",namespace="",node="n",pod="",product="PRODUCT",severity="uncorrected",shape="mig",uuid="UUID1"} 2
# HELP tessera_mig_device_ecc_errors_total ECC memory errors since the driver was loaded.
# TYPE tessera_mig_device_ecc_errors_total counter
tessera_mig_device_ecc_errors_total{claim="sliced",container="",gpu="GPU1",namespace="other",node="n",pod="c",product="PRODUCT",profile="1g.10gb",severity="uncorrected",shape="mig",uuid="MIG-1"} 1
# HELP tessera_mig_device_memory_used_bytes Allocated device memory, excluding memory reserved by the driver, in bytes.
# TYPE tessera_mig_device_memory_used_bytes gauge
tessera_mig_device_memory_used_bytes{claim="sliced",container="",gpu="GPU1",namespace="other",node="n",pod="c",product="PRODUCT",profile="1g.10gb",shape="mig",uuid="MIG-1"} 3
tessera_mig_device_memory_used_bytes{claim="",container="",gpu="GPU1",namespace="",node="n",pod="",product="PRODUCT",profile="1g.10gb",shape="mig",uuid="MIG-2"} 4
# HELP tessera_device_pod_info Pod that uses a GPU or a MIG device, one series per pod, for joins on uuid, or on gpu_uuid and gpu_instance. Always 1.
# TYPE tessera_device_pod_info gauge
tessera_device_pod_info{claim="one",container="main",gpu="GPU0",gpu_instance="",gpu_uuid="UUID0",namespace="team",node="n",pod="a",profile="",shape="timeshare",uuid="UUID0"} 1
tessera_device_pod_info{claim="two",container="main",gpu="GPU0",gpu_instance="",gpu_uuid="UUID0",namespace="team",node="n",pod="b",profile="",shape="timeshare",uuid="UUID0"} 1
tessera_device_pod_info{claim="sliced",container="",gpu="GPU1",gpu_instance="7",gpu_uuid="UUID1",namespace="other",node="n",pod="c",profile="1g.10gb",shape="mig",uuid="MIG-1"} 1
# HELP tessera_claim_memory_bytes Device memory allocated to the claim, in bytes.
# TYPE tessera_claim_memory_bytes gauge
tessera_claim_memory_bytes{claim="one",gpu="GPU0",namespace="team",node="n",product="PRODUCT",profile="",shape="timeshare",uuid="UUID0"} 1.073741824e+10
tessera_claim_memory_bytes{claim="two",gpu="GPU0",namespace="team",node="n",product="PRODUCT",profile="",shape="timeshare",uuid="UUID0"} 2.147483648e+10
tessera_claim_memory_bytes{claim="sliced",gpu="GPU1",namespace="other",node="n",product="PRODUCT",profile="1g.10gb",shape="mig",uuid="MIG-1"} 1.0468982784e+10
# HELP tessera_gpu_claims Devices of prepared claims on the GPU, by the GPU's shape.
# TYPE tessera_gpu_claims gauge
tessera_gpu_claims{gpu="GPU0",node="n",product="PRODUCT",shape="timeshare",uuid="UUID0"} 2
tessera_gpu_claims{gpu="GPU1",node="n",product="PRODUCT",shape="mig",uuid="UUID1"} 1
# HELP tessera_gpu_memory_slices Memory slices of a GPU with MIG: free, allocated, or withheld because of a foreign MIG device.
# TYPE tessera_gpu_memory_slices gauge
tessera_gpu_memory_slices{gpu="GPU0",node="n",product="PRODUCT",state="free",uuid="UUID0"} 0
tessera_gpu_memory_slices{gpu="GPU0",node="n",product="PRODUCT",state="allocated",uuid="UUID0"} 8
tessera_gpu_memory_slices{gpu="GPU0",node="n",product="PRODUCT",state="withheld",uuid="UUID0"} 0
tessera_gpu_memory_slices{gpu="GPU1",node="n",product="PRODUCT",state="free",uuid="UUID1"} 6
tessera_gpu_memory_slices{gpu="GPU1",node="n",product="PRODUCT",state="allocated",uuid="UUID1"} 1
tessera_gpu_memory_slices{gpu="GPU1",node="n",product="PRODUCT",state="withheld",uuid="UUID1"} 1
`, "tessera_gpu_utilization_ratio", "tessera_gpu_memory_used_bytes", "tessera_gpu_ecc_errors_total", "tessera_mig_device_memory_used_bytes", "tessera_mig_device_ecc_errors_total",
		"tessera_device_pod_info", "tessera_claim_memory_bytes", "tessera_gpu_claims", "tessera_gpu_memory_slices")
}

const upText = `
# HELP tessera_gpu_up 1 if the GPU responded to the last read, 0 otherwise.
# TYPE tessera_gpu_up gauge
tessera_gpu_up{gpu="GPU0",node="n",product="PRODUCT",uuid="UUID0"} %d
tessera_gpu_up{gpu="GPU1",node="n",product="PRODUCT",uuid="UUID1"} %d
`

const errorText = `
# HELP tessera_exporter_errors_total Failed or timed out reads of a GPU, of kubelet's list of pods, of the claim records or of the limits of containers.
# TYPE tessera_exporter_errors_total counter
`

// A GPU that hangs has no series, delays one scrape by the timeout and the others not at all.
func TestHangingGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.hangs[s.node.GPUs[0].Name()] = true
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		registry := s.exporter(ctx)
		begin := time.Now()
		s.compare(t, registry, fmt.Sprintf(upText, 0, 1), "tessera_gpu_up")
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("the first scrape took %v, want 3s", took)
		}
		begin = time.Now()
		s.compare(t, registry, fmt.Sprintf(upText, 0, 1)+errorText+`
tessera_exporter_errors_total{gpu="",node="n",reason="error",source="kubelet"} 0
tessera_exporter_errors_total{gpu="",node="n",reason="error",source="limits"} 0
tessera_exporter_errors_total{gpu="",node="n",reason="error",source="records"} 0
tessera_exporter_errors_total{gpu="GPU0",node="n",reason="timeout",source="hardware"} 2
tessera_exporter_errors_total{gpu="GPU1",node="n",reason="error",source="hardware"} 0
`, "tessera_gpu_up", "tessera_exporter_errors_total")
		if took := time.Since(begin); took != 0 {
			t.Errorf("the second scrape took %v, want no wait", took)
		}
		cancel()
		synctest.Wait()
	})
}

// Containers with a limit have series, whatever other containers use the GPU; a GPU that was removed has none.
func TestLimitedContainers(t *testing.T) {
	s := newScene(t)
	refused := uint64(2)
	s.usages = []limiter.Usage{
		{
			GPU: s.node.GPUs[0].Name(), Claim: prepare.Ref{Name: "share"}, Namespace: "team", Pod: "train-0", Container: "main",
			LimitBytes: 400, UsedBytes: 300, Refused: &refused,
		},
		{
			GPU: s.node.GPUs[0].Name(), Claim: prepare.Ref{Name: "share"}, Namespace: "team", Pod: "train-0", Container: "main",
			LimitBytes: 400, UsedBytes: 0, // the control group of the container before a restart
		},
		{GPU: "gpu-removed", LimitBytes: 1},
	}
	labels := `{claim="share",container="main",gpu="GPU0",namespace="team",node="n",pod="train-0",product="PRODUCT",uuid="UUID0"}`
	s.compare(t, s.exporter(t.Context()), `
# HELP tessera_container_memory_limit_bytes Device memory that the driver lets the container allocate of the GPU, in bytes. Absent without a limit.
# TYPE tessera_container_memory_limit_bytes gauge
tessera_container_memory_limit_bytes`+labels+` 400
# HELP tessera_container_memory_refused_total Allocations of device memory that the container's limit refused. Absent where the kernel does not count them.
# TYPE tessera_container_memory_refused_total counter
tessera_container_memory_refused_total`+labels+` 2
# HELP tessera_container_memory_used_bytes Device memory that the container has allocated of the GPU, as the driver counts it for the limit, in bytes.
# TYPE tessera_container_memory_used_bytes gauge
tessera_container_memory_used_bytes`+labels+` 300
`, "tessera_container_memory_limit_bytes", "tessera_container_memory_refused_total", "tessera_container_memory_used_bytes")
}

func TestGPUWithErrors(t *testing.T) {
	s := newScene(t)
	s.errs[s.node.GPUs[0].Name()] = errors.New("a sensor is broken")
	s.errs[s.node.GPUs[1].Name()] = fmt.Errorf("gone: %w", gpu.ErrLost)
	registry := s.exporter(t.Context())
	s.compare(t, registry, fmt.Sprintf(upText, 1, 0)+`
# HELP tessera_gpu_memory_used_bytes Allocated device memory, excluding memory reserved by the driver, in bytes.
# TYPE tessera_gpu_memory_used_bytes gauge
tessera_gpu_memory_used_bytes{claim="",container="",gpu="GPU0",namespace="team",node="n",pod="",product="PRODUCT",shape="timeshare",uuid="UUID0"} 7
`+errorText+`
tessera_exporter_errors_total{gpu="",node="n",reason="error",source="kubelet"} 0
tessera_exporter_errors_total{gpu="",node="n",reason="error",source="limits"} 0
tessera_exporter_errors_total{gpu="",node="n",reason="error",source="records"} 0
tessera_exporter_errors_total{gpu="GPU0",node="n",reason="error",source="hardware"} 1
tessera_exporter_errors_total{gpu="GPU1",node="n",reason="lost",source="hardware"} 1
`, "tessera_gpu_up", "tessera_gpu_memory_used_bytes", "tessera_exporter_errors_total")
}

// While kubelet does not respond, its last list is used, and its age is exported.
func TestKubeletUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.records = s.records[2:]
		registry := s.exporter(t.Context())
		const info = `
# HELP tessera_device_pod_info Pod that uses a GPU or a MIG device, one series per pod, for joins on uuid, or on gpu_uuid and gpu_instance. Always 1.
# TYPE tessera_device_pod_info gauge
tessera_device_pod_info{claim="sliced",container="",gpu="GPU1",gpu_instance="7",gpu_uuid="UUID1",namespace="other",node="n",pod="c",profile="1g.10gb",shape="mig",uuid="MIG-1"} 1
# HELP tessera_pod_mapping_age_seconds Time since kubelet last returned its list of pods and claims, in seconds.
# TYPE tessera_pod_mapping_age_seconds gauge
`
		s.compare(t, registry, info+`tessera_pod_mapping_age_seconds{node="n"} 0
`, "tessera_device_pod_info", "tessera_pod_mapping_age_seconds")
		s.pods, s.podsErr = nil, errors.New("connection refused")
		<-time.After(time.Minute)
		s.compare(t, registry, info+`tessera_pod_mapping_age_seconds{node="n"} 60
`, "tessera_device_pod_info", "tessera_pod_mapping_age_seconds")
		s.records = nil
		s.compare(t, registry, "", "tessera_device_pod_info")
	})
}

// Of two agents that overlap only one exports the devices.
func TestOnlyLeaderExports(t *testing.T) {
	s := newScene(t)
	s.follows = true
	families, err := s.exporter(t.Context()).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if name := family.GetName(); name != "tessera_exporter_errors_total" && name != "tessera_exporter_read_duration_seconds" {
			t.Errorf("an agent that does not lead reports %s", name)
		}
	}
}

// Every quantity is exported once, and names and texts follow Prometheus' conventions.
func TestTable(t *testing.T) {
	shown := map[gpu.Quantity]bool{}
	for _, s := range table() {
		if shown[s.quantity] {
			t.Errorf("%s is shown twice", s.quantity)
		}
		shown[s.quantity] = true
	}
	s := newScene(t)
	all := gpu.Telemetry{}
	for q := range shown {
		all[q] = 1
	}
	s.measured[s.node.GPUs[0].Name()] = gpu.Measurement{GPU: all}
	problems, err := testutil.GatherAndLint(s.exporter(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// A fault of a MIG device leaves its neighbors healthy; one of a GPU is exported for all its devices, with the affected
// pods.
func TestHealth(t *testing.T) {
	s := newScene(t)
	slice := s.node.GPUs[1].Instances[0].Placement
	s.node.GPUs[0].Faults = []gpu.Fault{{Signal: gpu.SignalHeat, Severity: gpu.Warning}}
	s.node.GPUs[1].Faults = []gpu.Fault{{Signal: gpu.SignalXID, XID: 94, Severity: gpu.Critical, Placement: slice}}
	s.node.GPUs[1].Held = "XID 94"
	registry := s.exporter(t.Context())
	const help = `
# HELP tessera_device_health 0 if the GPU or MIG device has a fault that prevents new claims, 1 otherwise.
# TYPE tessera_device_health gauge
`
	const first = `tessera_device_health{claim="",container="",gpu="GPU0",namespace="team",node="n",pod="",product="PRODUCT",profile="",shape="timeshare",uuid="UUID0"} `
	s.compare(t, registry, help+first+`1
tessera_device_health{claim="",container="",gpu="GPU1",namespace="",node="n",pod="",product="PRODUCT",profile="",shape="mig",uuid="UUID1"} 0
tessera_device_health{claim="sliced",container="",gpu="GPU1",namespace="other",node="n",pod="c",product="PRODUCT",profile="1g.10gb",shape="mig",uuid="MIG-1"} 0
tessera_device_health{claim="",container="",gpu="GPU1",namespace="",node="n",pod="",product="PRODUCT",profile="1g.10gb",shape="mig",uuid="MIG-2"} 1
# HELP tessera_gpu_held 1 while the GPU is held for remediation and accepts no new claims, 0 otherwise.
# TYPE tessera_gpu_held gauge
tessera_gpu_held{gpu="GPU0",node="n",product="PRODUCT",uuid="UUID0"} 0
tessera_gpu_held{gpu="GPU1",node="n",product="PRODUCT",uuid="UUID1"} 1
`, "tessera_device_health", "tessera_gpu_held")

	s.node.GPUs[1].Faults = []gpu.Fault{{Signal: gpu.SignalXID, XID: 79, Severity: gpu.Fatal}}
	s.node.GPUs[0].Lost = true
	s.compare(t, registry, help+first+`0
tessera_device_health{claim="",container="",gpu="GPU1",namespace="",node="n",pod="",product="PRODUCT",profile="",shape="mig",uuid="UUID1"} 0
tessera_device_health{claim="sliced",container="",gpu="GPU1",namespace="other",node="n",pod="c",product="PRODUCT",profile="1g.10gb",shape="mig",uuid="MIG-1"} 0
tessera_device_health{claim="",container="",gpu="GPU1",namespace="",node="n",pod="",product="PRODUCT",profile="1g.10gb",shape="mig",uuid="MIG-2"} 0
`, "tessera_device_health")
}
