package server

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// machine is a node whose faults the test sets.
type machine struct {
	mu       sync.Mutex
	node     gpu.Node
	known    bool
	outdated chan struct{}
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return &machine{node: gputest.Node(t, "h100x2"), known: true, outdated: make(chan struct{})}
}

func (m *machine) Watch() (gpu.Node, bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.node
	node.GPUs = slices.Clone(node.GPUs)
	return node, m.known, m.outdated
}

// change changes the machine; there is a new picture of it whether or not anything is different.
func (m *machine) change(f func(*machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
	close(m.outdated)
	m.outdated = make(chan struct{})
}

func (*machine) setFaults(faults ...gpu.Fault) func(*machine) {
	return func(m *machine) { m.node.GPUs[0].Faults = faults }
}

var (
	began  = time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	burst  = gpu.Fault{GPU: "x", Signal: gpu.SignalXID, XID: 79, Severity: gpu.Fatal, Since: began}
	part   = gpu.Fault{GPU: "x", Placement: gpu.Placement{Profile: 19, Start: 0, Size: 1}, Signal: gpu.SignalXID, XID: 94, Severity: gpu.Critical, Since: began}
	heated = gpu.Fault{GPU: "x", Signal: gpu.SignalHeat, Severity: gpu.Warning, Since: began}
)

// unhealthy returns the names of the devices of a report that are not Healthy.
func unhealthy(t *testing.T, report kubeletplugin.DeviceHealthReport) []string {
	t.Helper()
	var names []string
	seen := map[string]bool{}
	for _, d := range report.Devices {
		if d.PoolName != "node1-gpu.tessera.dev" || seen[d.DeviceName] || d.LastUpdated.IsZero() {
			t.Errorf("device %s/%s", d.PoolName, d.DeviceName)
		}
		seen[d.DeviceName] = true
		if d.Health != kubeletplugin.HealthStatusHealthy {
			names = append(names, d.DeviceName)
		}
	}
	return names
}

func of(report kubeletplugin.DeviceHealthReport, name string) kubeletplugin.DeviceHealth {
	for _, d := range report.Devices {
		if d.DeviceName == name {
			return d
		}
	}
	return kubeletplugin.DeviceHealth{}
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		p := &plugin{New(Config{Driver: "gpu.tessera.dev", Node: "node1", Health: m})}
		ctx, cancel := context.WithCancel(t.Context())
		reports, ended := make(chan kubeletplugin.DeviceHealthReport), make(chan error, 1)
		go func() { ended <- p.WatchHealthStatus(ctx, reports) }()
		next := func(when string, in time.Duration) kubeletplugin.DeviceHealthReport {
			t.Helper()
			start := time.Now()
			report := <-reports
			if took := time.Since(start); took != in {
				t.Errorf("%s: reported after %v, want %v", when, took, in)
			}
			return report
		}
		a, b := m.node.GPUs[0].Name(), m.node.GPUs[1].Name()

		first := next("at the start", 0)
		if got := unhealthy(t, first); got != nil || len(first.Devices) != len(m.node.GPUs[0].AllUses())+len(m.node.GPUs[1].AllUses()) {
			t.Errorf("at the start: %d devices, not healthy: %v", len(first.Devices), got)
		}
		next("later", healthPeriod)

		m.change(m.setFaults(burst))
		report := next("an XID", 0)
		for _, d := range report.Devices {
			want := kubeletplugin.HealthStatusHealthy
			if strings.HasPrefix(d.DeviceName, a) && d.DeviceName != a+"-monitor" {
				want = kubeletplugin.HealthStatusUnhealthy
			}
			if d.Health != want {
				t.Errorf("an XID of the GPU: %s is %s", d.DeviceName, d.Health)
			}
		}
		for _, name := range []string{a, a + "-mig-19-0", a + "-timeshare", a + "-mps"} {
			if got := of(report, name).Message; !strings.HasPrefix(got, a+": XID 79 since 2026-11-22T18:00:00Z: ") {
				t.Errorf("%s: %q", name, got)
			}
		}

		counted := burst
		counted.Count, counted.Last = 1000, began.Add(time.Hour)
		for range 50 {
			m.change(m.setFaults(counted)) // nothing that is reported to kubelet
			synctest.Wait()
		}
		next("a storm", healthPeriod)

		m.change(m.setFaults(part))
		report = next("of a slice", 0)
		if got := unhealthy(t, report); !slices.Contains(got, a+"-mig-19-0") || !slices.Contains(got, a) || slices.Contains(got, a+"-mig-19-1") || slices.Contains(got, b) {
			t.Errorf("an XID of a slice: not healthy are %v", got)
		}
		m.change(m.setFaults(heated))
		report = next("warm", 0)
		if got := of(report, b+"-mig-19-0"); unhealthy(t, report) != nil || got.Message != "" {
			t.Errorf("a warning: %v, %v", unhealthy(t, report), got)
		}
		if got := of(report, a); !strings.Contains(got.Message, "heat since") {
			t.Errorf("a warning is not reported: %q", got.Message)
		}
		m.change(func(m *machine) { m.node.GPUs[1].Lost = true })
		if got := of(next("lost", 0), b); got.Health != kubeletplugin.HealthStatusUnhealthy || !strings.Contains(got.Message, "does not respond") {
			t.Errorf("lost: %+v", got)
		}
		m.change(func(m *machine) { m.known = false })
		if got := of(next("unknown", 0), a); got.Health != kubeletplugin.HealthStatusUnknown {
			t.Errorf("a node that is not known: %+v", got)
		}
		m.change(func(m *machine) { m.known = true })
		cancel() // while kubelet does not read
		if err := <-ended; err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
}

// nextHealth is how the next report of a stream says that a device is, in either version of the API.
func nextHealth[R interface{ GetDevices() []D }, D interface {
	GetDevice() I
	GetHealth() H
}, I interface{ GetDeviceName() string }, H fmt.Stringer](t *testing.T, next func() (R, error), name string) string {
	t.Helper()
	report, err := next()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range report.GetDevices() {
		if d.GetDevice().GetDeviceName() == name {
			return d.GetHealth().String()
		}
	}
	return ""
}

// Kubelets of both versions follow at once, and the server ends although they do.
func TestHealthStreams(t *testing.T) {
	c := config(t)
	m := newMachine(t)
	c.Health = m
	s := New(c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	connection := dial(t, waitForSocket(t, s.PluginDir, "dra*.sock"))
	limited, done := context.WithTimeout(t.Context(), harness.Patience)
	defer done()
	newer, err := drahealthv1.NewDRAResourceHealthClient(connection).NodeWatchResources(limited, &drahealthv1.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	older, err := drahealthv1alpha1.NewDRAResourceHealthClient(connection).NodeWatchResources(limited, &drahealthv1alpha1.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	name := m.node.GPUs[0].Name()
	reports := map[string]func() string{
		"newer": func() string { return nextHealth(t, newer.Recv, name) },
		"older": func() string { return nextHealth(t, older.Recv, name) },
	}
	for kubelet, health := range reports {
		if got := health(); got != "HEALTHY" {
			t.Errorf("the report to the %s kubelet is %q at the start", kubelet, got)
		}
	}
	m.change(m.setFaults(burst))
	for kubelet, health := range reports {
		got := health()
		for got == "HEALTHY" { // told once more meanwhile, as it is every healthPeriod
			got = health()
		}
		if got != "UNHEALTHY" {
			t.Errorf("the report to the %s kubelet is %q after an XID", kubelet, got)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for err == nil { // what was told last may still lie there
		_, err = newer.Recv()
	}
	if status.Code(err) == codes.DeadlineExceeded {
		t.Error("the stream continues after the server's end")
	}
	if left, _ := filepath.Glob(filepath.Join(s.PluginDir, "dra*.sock")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
