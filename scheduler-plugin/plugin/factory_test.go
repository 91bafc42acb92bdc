package plugin

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tessera-gpu/tessera/api/wire"
)

// profile is the handle of another profile of the same scheduler.
type profile struct {
	fwk.Handle
	name string
}

func (p profile) ProfileName() string { return p.name }

func yaml(text string) *runtime.Unknown {
	return &runtime.Unknown{ContentType: runtime.ContentTypeYAML, Raw: []byte(text)}
}

func TestProfilesShareAnIndex(t *testing.T) {
	newSite(t, nil, nil, func(ctx context.Context, h fwk.Handle) (fwk.Plugin, error) {
		f := NewFactory()
		first, err := f.New(ctx, yaml("candidates: 8"), h)
		if err != nil {
			return nil, err
		}
		second, err := f.New(ctx, yaml("candidates: 9"), profile{h, "second"})
		if err != nil {
			return nil, err
		}
		a, _ := first.(*Plugin)
		b, _ := second.(*Plugin)
		if a == nil || b == nil || a.shared != b.shared {
			t.Error("two profiles of one scheduler have an index each")
		}
		if _, err := f.New(ctx, yaml("drivers: [other]"), profile{h, "third"}); err == nil {
			t.Error("a profile with other drivers than the first one's is taken")
		}
		if _, err := New(ctx, nil, profile{h, "fourth"}); err == nil {
			t.Error("a second factory for the same scheduler is taken")
		}
		return first, nil
	})
}

func TestCollector(t *testing.T) {
	f := NewFactory()
	objects, nodes := hardware(t, 2, "gpu")
	var stolen *resourceapi.ResourceSlice
	for _, object := range objects {
		if s, ok := object.(*resourceapi.ResourceSlice); ok {
			stolen = s.DeepCopy()
		}
	}
	stolen.Name, stolen.Spec.Pool.Name = "stolen", wire.PoolName(nodes[0].Name, stolen.Spec.Driver)
	objects = append(objects, stolen)
	s := newSite(t, objects, nodes, func(ctx context.Context, h fwk.Handle) (fwk.Plugin, error) { return f.New(ctx, nil, h) })
	p, ok := s.plugin.(*Plugin)
	if !ok {
		t.Fatalf("the plugin is a %T", s.plugin)
	}
	if err := p.shared.waitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	registry := compbasemetrics.NewKubeRegistry()
	registry.CustomMustRegister(newCollector(f))
	want := `
# HELP tessera_scheduler_gpus [ALPHA] GPUs without an allocation (idle) and with one (used).
# TYPE tessera_scheduler_gpus gauge
tessera_scheduler_gpus{state="idle"} 8
tessera_scheduler_gpus{state="used"} 8
# HELP tessera_scheduler_allocated_devices [ALPHA] Allocated devices: written to the claim (written), or assumed and not yet written (in_flight).
# TYPE tessera_scheduler_allocated_devices gauge
tessera_scheduler_allocated_devices{state="in_flight"} 0
tessera_scheduler_allocated_devices{state="written"} 8
# HELP tessera_scheduler_refused_pools [ALPHA] Nodes that publish a pool that no agent publishes: under another node's name (not_own), or beyond a bound (too_large).
# TYPE tessera_scheduler_refused_pools gauge
tessera_scheduler_refused_pools{reason="not_own"} 1
tessera_scheduler_refused_pools{reason="too_large"} 0
# HELP tessera_scheduler_stranded_memory_slices [ALPHA] Free memory slices on GPUs in use.
# TYPE tessera_scheduler_stranded_memory_slices gauge
tessera_scheduler_stranded_memory_slices 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "tessera_scheduler_gpus", "tessera_scheduler_allocated_devices", "tessera_scheduler_refused_pools", "tessera_scheduler_stranded_memory_slices"); err != nil {
		t.Error(err)
	}
}

// TestNothingStaysReserved unreserves and reserves the same devices again in one cycle, as the scheduling of a pod
// group does.
func TestNothingStaysReserved(t *testing.T) {
	objects, nodes := hardware(t, 2, "gpu")
	s := newSite(t, objects, nodes, func(ctx context.Context, h fwk.Handle) (fwk.Plugin, error) { return New(ctx, nil, h) })
	p, ok := s.plugin.(*Plugin)
	if !ok {
		t.Fatalf("the plugin is a %T", s.plugin)
	}
	pod, claim := &corev1.Pod{}, "claim"
	pod.Namespace, pod.Name, pod.UID = "default", "pod", "pod"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &claim}}
	ctx, cs := t.Context(), framework.NewCycleState()
	if _, status := p.PreFilter(ctx, cs, pod, s.nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := p.Filter(ctx, cs, pod, s.nodes[0]); !status.IsSuccess() {
		t.Fatal(status)
	}
	node := s.nodes[0].Node().Name
	for range 3 {
		if status := p.Reserve(ctx, cs, pod, node); !status.IsSuccess() {
			t.Fatal(status)
		}
		if got := p.shared.index.Stats().InFlight; got != 1 {
			t.Errorf("%d devices are in flight, want 1", got)
		}
		p.Unreserve(ctx, cs, pod, node)
		p.Unreserve(ctx, cs, pod, node)
		if got := p.shared.index.Stats().InFlight; got != 0 {
			t.Errorf("%d devices are in flight after Unreserve", got)
		}
		if p.shared.manager.ResourceClaims().GetPendingAllocation("claim") != nil {
			t.Error("the claim is in flight after Unreserve")
		}
	}
}
