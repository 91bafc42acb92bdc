package requirements_test

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// exact returns a claim with one request of one device.
func exact(name, class string, expressions ...string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "request", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1, Selectors: selectors(expressions...),
			},
		}}}},
	}
}

// BenchmarkOn measures what a node of eight GPUs in all shapes costs that the demand has not seen.
func BenchmarkOn(b *testing.B) {
	for name, expressions := range map[string][]string{
		"class":    nil,
		"selector": {`device.attributes["gpu.tessera.dev"].profile == "1g.10gb"`},
		"bind":     {`cel.bind(d, device.attributes["gpu.tessera.dev"], d.profile == "1g.10gb" && d.index < 4)`},
		"opaque":   {`device.attributes["gpu.tessera.dev"].exists(n, n == "profile")`},
	} {
		b.Run(name, func(b *testing.B) {
			var sites []*site
			for i := range 8 {
				name := fmt.Sprintf("node-%d", i)
				sites = append(sites, newSite(name, published(b, "h100x8", name)))
			}
			reader := requirements.NewReader(shapes(), sites[0].index)
			d, err := reader.Read([]*resourceapi.ResourceClaim{exact("claim", "mig", expressions...)}, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(sites[0].node(b).Devices)), "devices")
			for i := 0; b.Loop(); i++ {
				n := sites[i%len(sites)].node(b)
				if i%len(sites) == 0 {
					for _, s := range sites {
						d.DropNode(s.name)
					}
				}
				if _, err := d.OnNode(n, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("seen", func(b *testing.B) {
		s := newSite("node", published(b, "h100x8", "node"))
		d, err := requirements.NewReader(shapes(), s.index).Read([]*resourceapi.ResourceClaim{exact("claim", "mig")}, nil)
		if err != nil {
			b.Fatal(err)
		}
		n := s.node(b)
		for b.Loop() {
			if _, err := d.OnNode(n, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRead measures what a pod costs whose demand is known.
func BenchmarkRead(b *testing.B) {
	s := newSite("node", published(b, "h100x8", "node"))
	reader := requirements.NewReader(shapes(), s.index)
	claims := []*resourceapi.ResourceClaim{exact("claim", "mig", `device.attributes["gpu.tessera.dev"].profile == "1g.10gb"`)}
	for b.Loop() {
		if _, err := reader.Read(claims, nil); err != nil {
			b.Fatal(err)
		}
	}
}
