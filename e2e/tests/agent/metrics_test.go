package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/prometheus"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// pods simulates kubelet's podresources API: which container uses which claim.
type pods struct {
	podresources.UnimplementedPodResourcesListerServer
	mu   sync.Mutex
	list []*podresources.PodResources
}

// servePods starts the podresources API on the node.
func (n *node) servePods() *pods {
	n.t.Helper()
	p := &pods{}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, p)
	listener, err := new(net.ListenConfig).Listen(n.t.Context(), "unix", n.host.PodResources())
	n.must(err)
	go func() { _ = server.Serve(listener) }()
	n.t.Cleanup(server.Stop)
	return p
}

func (p *pods) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &podresources.ListPodResourcesResponse{PodResources: p.list}, nil
}

// run lets a container of a pod use the devices of a claim, as returned to kubelet.
func (p *pods) run(pod string, claim *drapb.Claim, devices []*drapb.Device) {
	used := &podresources.DynamicResource{ClaimName: claim.GetName(), ClaimNamespace: claim.GetNamespace()}
	for _, d := range devices {
		used.ClaimResources = append(used.ClaimResources, &podresources.ClaimResource{
			DriverName: driver, PoolName: d.GetPoolName(), DeviceName: d.GetDeviceName(), ShareId: d.ShareId,
		})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, &podresources.PodResources{
		Name: pod, Namespace: claim.GetNamespace(),
		Containers: []*podresources.ContainerResources{{Name: "main", DynamicResources: []*podresources.DynamicResource{used}}},
	})
}

// share lets the claim consume the given memory of a shared device.
func share(id, memory string) change {
	return func(claim *resourceapi.ResourceClaim) {
		if claim.Status.Allocation == nil {
			return
		}
		for i := range claim.Status.Allocation.Devices.Results {
			claim.Status.Allocation.Devices.Results[i].ShareID = new(types.UID(id))
			claim.Status.Allocation.Devices.Results[i].ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
				driver + "/" + wire.Memory: resource.MustParse(memory), driver + "/" + wire.Shares: resource.MustParse("1"),
			}
		}
	}
}

// scrape returns the agent's metrics.
func (a *agent) scrape() string {
	a.node.t.Helper()
	text, err := a.metrics(a.node.t.Context())
	a.node.must(err)
	return text
}

func (a *agent) metrics(ctx context.Context) (string, error) {
	response, err := a.get(ctx, "/metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("scrape: %s\n%s", response.Status, text)
	}
	return string(text), err
}

// timeouts matches the lines of a scrape that count timeouts.
var timeouts = regexp.MustCompile(`(?m)^tessera_exporter_errors_total\{.*reason="timeout".*$`)

// ready is the line of a scrape of a ready agent: it is registered and its devices are published.
const ready = "\ntessera_agent_ready 1\n"

// scrapeAll scrapes until no timeout occurs, including the API server's: a busy machine may be interrupted during a
// scrape.
func (a *agent) scrapeAll() string {
	a.node.t.Helper()
	text := a.scrape()
	a.node.eventually("everybody answers in time", func(ctx context.Context) error {
		next, err := a.metrics(ctx)
		if err != nil {
			return err
		}
		diff := cmp.Diff(timeouts.FindAllString(text, -1), timeouts.FindAllString(next, -1))
		if text = next; diff != "" {
			return fmt.Errorf("late (-before +now):\n%s", diff)
		}
		if !strings.Contains(text, ready) {
			return errors.New("the agent is not ready")
		}
		return nil
	})
	return text
}

// prepared returns the scrape as of an agent that has prepared count claims in no time.
func prepared(scrape, count string) string {
	return regexp.MustCompile(`(?m)^(tessera_prepare_duration_seconds_bucket\{.*\}) .*$`).ReplaceAllString(scrape, "$1 "+count)
}

// stale waits until the next scrape reads the hardware again.
func stale() { <-time.After(1100 * time.Millisecond) }

// server is a Prometheus that scrapes an agent or a scheduler. Its methods end the test with an error.
type server struct {
	prometheus.Server
	t *testing.T
}

// newPrometheus returns a Prometheus. target are labels of the target in addition to its namespace.
func newPrometheus(t *testing.T, target map[string]string) server {
	t.Helper()
	program, err := shared.promql()
	if err != nil {
		t.Fatal(err)
	}
	target["namespace"] = "tessera-system"
	return server{prometheus.Server{Program: program, Target: target}, t}
}

// evaluate evaluates all queries after the scrapes.
func (s server) evaluate(scrapes, queries []string) []prometheus.Outcome {
	s.t.Helper()
	outcomes, err := s.Evaluate(s.t.Context(), scrapes, queries)
	if err != nil {
		s.t.Fatal(err)
	}
	return outcomes
}

// rules returns the alerts and recording rules of groups.
func rules(t *testing.T, groups ...string) (alerts, records prometheus.Queries) {
	t.Helper()
	alerts, records, err := prometheus.Rules(groups...)
	if err != nil {
		t.Fatal(err)
	}
	return alerts, records
}

// readmeQueries returns the example queries of the README: one per line, continued on indented lines.
func readmeQueries(t *testing.T) prometheus.Queries {
	t.Helper()
	text, err := prometheus.File("README.md")
	if err != nil {
		t.Fatal(err)
	}
	queries := prometheus.Queries{}
	blocks := strings.Split(string(text), "```")
	for i := 1; i < len(blocks); i += 2 {
		if !strings.HasPrefix(blocks[i], "\n# ") {
			continue
		}
		for query := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSpace(blocks[i]), "\n  ", " "), "\n") {
			if !strings.HasPrefix(query, "#") {
				queries["README "+query] = query
			}
		}
	}
	if len(queries) == 0 {
		t.Fatal("the README has no queries")
	}
	return queries
}

// unmeasured matches the metrics that the fake does not provide: it counts neither errors of single MIG devices nor
// PCIe replays.
var unmeasured = regexp.MustCompile(`\btessera_(slice_ecc_errors|gpu_pcie_replays)_total\b`)

// complaints returns the parts of a query that match no series of the scrapes.
func complaints(o prometheus.Outcome) []string {
	var all []string
	if o.Error != "" {
		all = append(all, o.Error)
	}
	for _, unknown := range o.Unknown {
		if !unmeasured.MatchString(unknown) {
			all = append(all, "nothing is called "+unknown)
		}
	}
	return all
}

// ward is a node in all shapes whose agent is monitored.
type ward struct {
	*node
	agent   *agent
	kubelet *kubelet
	// scrapes are two scrapes of a healthy node with activity in between.
	scrapes []string
	whole   *drapb.Claim
}

// newWard lets pods use a whole GPU, three MIG devices of another, one of which two pods share, and two shares of a
// third.
func newWard(t *testing.T) *ward {
	t.Helper()
	n := newNode(t, "h100x8")
	pods := n.servePods()
	w := &ward{node: n}
	w.agent, w.kubelet = n.run()
	w.agent.waitReady()

	use := func(name string, device gpu.Device, changes ...change) (*drapb.Claim, []*drapb.Device) {
		claim := n.claim(name, []gpu.Device{device}, changes...)
		return claim, w.kubelet.mustPrepare(claim)
	}
	var devices []*drapb.Device
	w.whole, devices = use("whole", n.whole(0))
	pods.run("trainer", w.whole, devices)
	for i, start := range []int{0, 1} {
		claim, devices := use(fmt.Sprintf("slice-%d", i), n.slice(1, 19, start))
		pods.run(fmt.Sprintf("small-%d", i), claim, devices)
	}
	both, devices := use("both", n.slice(1, 9, 4))
	pods.run("left", both, devices)
	pods.run("right", both, devices)
	turns := gpu.Device{GPU: n.hardware.GPUs[2].Name(), Use: gpu.Use{Shape: gpu.TimeShare}}
	for i, memory := range []string{"10Gi", "20Gi"} {
		claim, devices := use(fmt.Sprintf("turn-%d", i), turns, share(fmt.Sprintf("5b1c1b5e-0000-4000-8000-00000000000%d", i), memory))
		pods.run(fmt.Sprintf("turn-%d", i), claim, devices)
	}
	wrong := n.claim("wrong", []gpu.Device{n.whole(0)})
	if _, err := w.kubelet.prepare(wrong); err == nil {
		t.Fatal("a GPU that is in use was prepared again")
	}

	readings := fakegpu.Readings{
		GPUUtilization: 55, MemoryUtilization: 20, Temperature: 61, Power: 300_000, Energy: 1_000_000, SMClock: 1980, MemoryClock: 2619,
	}
	n.must(fakegpu.Sense(n.machine(), 0, readings))
	n.must(fakegpu.StartProcess(n.machine(), fakegpu.On(0), 4711, 30<<30))
	again := n.claim("again", []gpu.Device{n.whole(3)})
	live := func() {
		w.kubelet.mustPrepare(again)
		w.kubelet.mustUnprepare(again)
	}
	live()
	first := w.agent.scrapeAll()
	readings.Energy += 9_000_000
	n.must(fakegpu.Sense(n.machine(), 0, readings))
	live()
	stale()
	w.scrapes = []string{first + limitedContainer, w.agent.scrapeAll() + limitedContainer}
	return w
}

// limitedContainer are series of a container with limited memory: the fake driver of the ward, 580, has no limits.
const limitedContainer = `tessera_container_memory_limit_bytes{node="n",gpu="g",namespace="a",pod="p",container="c"} 100
tessera_container_memory_used_bytes{node="n",gpu="g",namespace="a",pod="p",container="c"} 40
`

func TestMetrics(t *testing.T) {
	t.Parallel() // waits for readings to become stale
	w := newWard(t)
	p := newPrometheus(t, map[string]string{
		"job": "tessera-system/tessera-node", "instance": "10.0.0.1:8080", "node": w.name, "pod": "tessera-node-x", "container": "agent",
	})

	t.Run("values", func(t *testing.T) { w.values(t, p) })
	t.Run("dashboards", func(t *testing.T) {
		all := readmeQueries(t)
		for _, name := range []string{"fleet", "node", "namespace"} { // the others have metrics of the scheduler and the installer
			queries, err := prometheus.Dashboard(name)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(all, queries)
		}
		names, queries := all.Sorted()
		for i, outcome := range p.evaluate(w.scrapes, queries) {
			for _, complaint := range complaints(outcome) {
				t.Errorf("%s: %s: %s", names[i], queries[i], complaint)
			}
			// Queries that show problems only, and metrics that the fake does not provide, have empty results.
			quiet := strings.Contains(queries[i], "> 0") || unmeasured.MatchString(strings.Join(outcome.Unknown, ""))
			if len(outcome.Samples) == 0 && !quiet {
				t.Errorf("%s: %s: nothing to show", names[i], queries[i])
			}
		}
	})
	t.Run("alerts", func(t *testing.T) { w.alerts(t, p) })
	t.Run("DCGM", func(t *testing.T) { w.dcgm(t, p) })
	t.Run("cost", func(t *testing.T) {
		stale()
		for _, what := range []string{"reading the hardware", "from the last reading"} {
			begin := time.Now()
			text := w.agent.scrape()
			t.Logf("a scrape of 8 GPUs and 3 MIG devices %s took %v: %d series", what, time.Since(begin), strings.Count(text, "\n")-2*strings.Count(text, "# TYPE"))
		}
	})
	t.Run("a GPU that hangs", func(t *testing.T) {
		late := regexp.MustCompile(`(?m)^tessera_exporter_errors_total\{gpu="` + w.hardware.GPUs[0].Name() + `",node="` + w.name + `",reason="timeout",source="hardware"\} \d+$`)
		before := late.FindString(w.agent.scrapeAll())
		w.must(fakegpu.Slow(w.machine(), "nvmlDeviceGetTemperature", time.Hour))
		stale()
		if now := late.FindString(w.agent.scrape()); now == before {
			t.Errorf("the scrape does not tell of the GPU that hangs: %q", now)
		}
		// Unprepare must not wait for readings.
		w.kubelet.mustUnprepare(w.whole)
		w.kubelet.mustPrepare(w.whole)
	})
}

// dcgm checks that the recording rules give DCGM's metrics the pods of the devices. The lines have the form of dcgm-exporter 4.8.3
// (internal/pkg/rendermetrics): no label of the pods of this DRA driver, GPU_I_ID for a MIG device. Prometheus adds the labels of the exporter's pod.
func (w *ward) dcgm(t *testing.T, p server) {
	_, records := rules(t, "tessera-dcgm")
	names, queries := records.Sorted()
	state, err := fakegpu.Read(w.machine())
	w.must(err)
	var text strings.Builder
	for _, metric := range []string{"GR_ENGINE_ACTIVE", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE", "PCIE_TX_BYTES", "PCIE_RX_BYTES"} {
		fmt.Fprintf(&text, "# TYPE DCGM_FI_PROF_%s gauge\n", metric)
		for _, g := range state.GPUs {
			line := fmt.Sprintf("DCGM_FI_PROF_%s{gpu=\"%d\",UUID=%q,device=\"nvidia%d\",modelName=%q", metric, g.Index, g.UUID, g.Index, g.Product)
			fmt.Fprintf(&text, "%s,hostname=%q} 0.%d\n", line, w.name, g.Index+1)
			for _, i := range g.Instances {
				fmt.Fprintf(&text, "%s,GPU_I_PROFILE=\"x\",GPU_I_ID=\"%d\",hostname=%q} 0.5%d\n", line, i.ID, w.name, i.Start)
			}
		}
	}
	want := []string{"left 0.54", "right 0.54", "small-0 0.5", "small-1 0.51", "trainer 0.1", "turn-0 0.3", "turn-1 0.3"}
	for i, outcome := range p.evaluate([]string{w.scrapes[1] + text.String()}, queries) {
		var got []string
		for _, sample := range outcome.Samples {
			got = append(got, sample.Labels["pod"]+" "+sample.Value)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" || len(complaints(outcome)) > 0 {
			t.Errorf("%s: %v (-want +got):\n%s", names[i], complaints(outcome), diff)
		}
	}
	if len(names) == 0 {
		t.Error("there is no recording rule")
	}
}

// values checks the values of single series.
func (w *ward) values(t *testing.T, p server) {
	shared := fmt.Sprintf(`{gpu=%q}`, w.hardware.GPUs[2].Name())
	tests := []struct {
		query string
		want  []string
	}{
		{`tessera_gpu_utilization_ratio{pod="trainer",namespace="default",container="main",shape="gpu"}`, []string{"0.55"}},
		{`tessera_gpu_memory_utilization_ratio{pod="trainer"}`, []string{"0.2"}},
		{`tessera_gpu_memory_used_bytes{pod="trainer"} / 2^30`, []string{"30"}},
		{`tessera_gpu_temperature_celsius{pod="trainer"}`, []string{"61"}},
		{`tessera_gpu_power_watts{pod="trainer"}`, []string{"300"}},
		{`tessera_gpu_energy_joules_total{pod="trainer"}`, []string{"10000"}},
		{`(tessera_gpu_energy_joules_total{pod="trainer"} - tessera_gpu_energy_joules_total offset 30s) / 30`, []string{"300"}},
		{`tessera_gpu_clock_hertz{pod="trainer"} / 1e6`, []string{"1980", "2619"}},
		{`count(tessera_gpu_up == 1)`, []string{"8"}},
		{`count by (shape) (tessera_gpu_claims)`, []string{"1", "1", "1", "5"}},
		// A GPU with MIG devices has no utilization; its MIG devices have memory and pods.
		{`count(tessera_gpu_utilization_ratio)`, []string{"7"}},
		{`count(tessera_mig_device_utilization_ratio) or vector(0)`, []string{"0"}},
		{`count by (pod) (tessera_mig_device_memory_total_bytes{profile="1g.10gb"})`, []string{"1", "1"}},
		{`tessera_mig_device_memory_total_bytes{profile="3g.40gb",pod="",namespace="default",claim!=""} / 2^30 > bool 39`, []string{"1"}},
		// Several pods of a shared device do not multiply its series.
		{`count(tessera_gpu_utilization_ratio` + shared + `)`, []string{"1"}},
		{`count(tessera_gpu_utilization_ratio{shape="timeshare",pod="",namespace="default"})`, []string{"1"}},
		{`count(tessera_device_pod_info` + shared + `)`, []string{"2"}},
		{`count(tessera_device_pod_info{profile="3g.40gb",pod=~"left|right"})`, []string{"2"}},
		{`tessera_claim_memory_bytes{shape="timeshare"} / 2^30`, []string{"10", "20"}},
		{`max by (uuid) (tessera_gpu_utilization_ratio) * on (uuid) group_right () tessera_device_pod_info{pod="trainer"}`, []string{"0.55"}},
		{`sum(tessera_gpu_memory_slices{state="allocated"})`, []string{"22"}},
		{`sum(tessera_prepare_step_duration_seconds_count{step="create-instance"})`, []string{"3"}},
		{`sum(tessera_claim_errors_total{operation="prepare"})`, []string{"1"}},
		{`tessera_agent_ready + on (node) tessera_build_info`, []string{"2"}},
	}
	var queries []string
	for _, test := range tests {
		queries = append(queries, test.query)
	}
	for i, outcome := range p.evaluate(w.scrapes, queries) {
		var got []string
		for _, s := range outcome.Samples {
			got = append(got, s.Value)
		}
		slices.Sort(got)
		if diff := cmp.Diff(tests[i].want, got); diff != "" || outcome.Error != "" {
			t.Errorf("%s (-want +got): %s\n%s", tests[i].query, outcome.Error, diff)
		}
	}
}

// alerts checks that each alert fires for its cause and no other alert does.
func (w *ward) alerts(t *testing.T, p server) {
	alerts, _ := rules(t, "tessera")
	names, rules := alerts.Sorted()
	healthy := prepared(w.scrapes[1], "9")
	firing := func(scrapes ...string) []string {
		t.Helper()
		var loud []string
		for i, outcome := range p.evaluate(append([]string{prepared(w.scrapes[0], "0"), healthy}, scrapes...), rules) {
			for _, complaint := range complaints(outcome) {
				t.Errorf("%s: %s", names[i], complaint)
			}
			if len(outcome.Samples) > 0 {
				loud = append(loud, names[i])
			}
		}
		return loud
	}
	// changed returns the last scrape with other values in the matching lines.
	changed := func(pattern, value string) string {
		t.Helper()
		lines := regexp.MustCompile(`(?m)^(` + pattern + `) .*$`)
		if !lines.MatchString(healthy) {
			t.Fatalf("no line matches %s", pattern)
		}
		return lines.ReplaceAllString(healthy, "$1 "+value)
	}
	tests := map[string]struct {
		scrape string
		want   []string
	}{
		"healthy":             {healthy, nil},
		"no answer":           {"", []string{"TesseraAgentDown"}},
		"not ready":           {changed(`tessera_agent_ready`, "0"), []string{"TesseraAgentNotReady"}},
		"not published":       {changed(`tessera_resourceslices_published`, "0"), []string{"TesseraResourceSlicesMissing"}},
		"GPU does not answer": {changed(`tessera_gpu_up\{[^}]*\}`, "0"), []string{"TesseraGPUNotResponding"}},
		"a device not well":   {changed(`tessera_device_health\{[^}]*uuid="MIG-[^}]*\}`, "0"), []string{"TesseraGPUUnhealthy"}},
		"held for a remedy":   {changed(`tessera_gpu_held\{[^}]*\}`, "1"), []string{"TesseraGPUHeld"}},
		"remap failed":        {changed(`tessera_gpu_row_remap_failed\{[^}]*\}`, "1"), []string{"TesseraRowRemapFailed"}},
		"remap pending":       {changed(`tessera_gpu_row_remap_pending\{[^}]*\}`, "1"), []string{"TesseraRowRemapPending"}},
		"uncorrected":         {changed(`tessera_gpu_ecc_errors_total\{[^}]*severity="uncorrected"[^}]*\}`, "1"), []string{"TesseraUncorrectedMemoryErrors"}},
		"corrected":           {changed(`tessera_gpu_ecc_errors_total\{[^}]*severity="corrected"[^}]*\}`, "1"), nil},
		"hot":                 {changed(`tessera_gpu_clocks_limited\{[^}]*reason="thermal"[^}]*\}`, "1"), []string{"TesseraClocksLimited"}},
		"at the power limit":  {changed(`tessera_gpu_clocks_limited\{[^}]*reason="power_cap"[^}]*\}`, "1"), nil},
		"foreign instances":   {changed(`tessera_foreign_mig_devices`, "2"), []string{"TesseraForeignMIGDevices"}},
		"claims fail":         {changed(`tessera_claim_errors_total\{[^}]*\}`, "9"), []string{"TesseraClaimErrors"}},
		"slow":                {changed(`tessera_prepare_duration_seconds_bucket\{[^}]*le="\+Inf"[^}]*\}`, "99"), []string{"TesseraPrepareSlow"}},
		"at its limit":        {changed(`tessera_container_memory_used_bytes\{[^}]*\}`, "96"), []string{"TesseraShareAtMemoryLimit"}},
		"kubelet away":        {changed(`tessera_pod_mapping_age_seconds\{[^}]*\}`, "1000"), []string{"TesseraPodMappingStale"}},
	}
	covered := map[string]bool{}
	for name, test := range tests {
		got := firing(test.scrape)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: alerts (-want +got):\n%s", name, diff)
		}
		for _, alert := range test.want {
			covered[alert] = true
		}
	}
	for _, name := range names {
		if !covered[name] {
			t.Errorf("no case lets %s fire", name)
		}
	}

	t.Run("with real faults", func(t *testing.T) {
		w.must(fakegpu.ECC(w.machine(), 4, 5, 1))
		w.must(fakegpu.Remap(w.machine(), 5, fakegpu.Remapping{Uncorrectable: 1, Pending: true, Failed: true}))
		w.must(fakegpu.Lose(w.machine(), 6))
		// The devices are tainted: the agent is not ready until the taints are published.
		w.marked("memory errors", gpu.SignalECC, w.on("NoSchedule", 4))
		w.marked("a row that cannot be remapped", gpu.SignalRemapFailed, w.on("NoSchedule", 5))
		w.marked("no answer", gpu.SignalLost, w.on("NoSchedule", 6))
		w.agent.waitReady()
		stale()
		want := []string{"TesseraGPUNotResponding", "TesseraGPUUnhealthy", "TesseraRowRemapFailed", "TesseraRowRemapPending", "TesseraUncorrectedMemoryErrors"}
		if diff := cmp.Diff(want, firing(prepared(w.agent.scrapeAll(), "9"))); diff != "" {
			t.Errorf("alerts (-want +got):\n%s", diff)
		}
	})
}

// TestSchedulerAlert evaluates the alert of tessera-scheduler on the metrics of its two pods, of which one is the leader. The suite checks that the pods have
// this series.
func TestSchedulerAlert(t *testing.T) {
	t.Parallel()
	p := newPrometheus(t, map[string]string{"job": "tessera-system/tessera-scheduler", "instance": "10.0.0.1:10259"})
	pods := func(first, second string) string {
		const series = "# TYPE leader_election_master_status gauge\n" +
			"leader_election_master_status{name=\"kube-scheduler\",pod=\"a\"} %s\nleader_election_master_status{name=\"kube-scheduler\",pod=\"b\"} %s\n"
		return fmt.Sprintf(series, first, second)
	}
	alerts, _ := rules(t, "tessera-scheduler")
	names, rules := alerts.Sorted()
	for name, test := range map[string]struct {
		scrape string
		want   []string
	}{
		"one pod leads":   {pods("0", "1"), nil},
		"no pod leads":    {pods("0", "0"), names},
		"no pod responds": {"", names},
	} {
		var loud []string
		for i, outcome := range p.evaluate([]string{pods("1", "0"), test.scrape}, rules) {
			for _, complaint := range complaints(outcome) {
				t.Errorf("%s: %s: %s", name, names[i], complaint)
			}
			if len(outcome.Samples) > 0 {
				loud = append(loud, names[i])
			}
		}
		if diff := cmp.Diff(test.want, loud); diff != "" {
			t.Errorf("%s: alerts (-want +got):\n%s", name, diff)
		}
	}
}
