package nodestate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/installer/controller/informers"
)

// A node is refused for what hands its GPUs out, not for whatever else NVIDIA's device plugins offer.
func TestDevicePluginsOfGPUs(t *testing.T) {
	tests := map[string]struct {
		offered string
		sandbox bool
		want    string
	}{
		"GPUs":                            {offered: "nvidia.com/gpu", want: "nvidia.com/gpu"},
		"shared GPUs":                     {offered: "nvidia.com/gpu.shared", want: "nvidia.com/gpu.shared"},
		"slices":                          {offered: "nvidia.com/mig-1g.10gb", want: "nvidia.com/mig-1g.10gb"},
		"network cards":                   {offered: "nvidia.com/hostdev"},
		"network cards of another vendor": {offered: "nvidia.com/gpudirect_nics"},
		"GPUs of others":                  {offered: "amd.com/gpu"},
		"virtual GPUs":                    {offered: "nvidia.com/GRID_T4-1Q", sandbox: true, want: "nvidia.com/GRID_T4-1Q"},
		"GPUs for virtual machines":       {offered: "nvidia.com/pgpu", sandbox: true, want: "nvidia.com/pgpu"},
		"what is for virtual machines, on another": {offered: "nvidia.com/pgpu"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kept, err := informers.TrimNode(&corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
				corev1.ResourceName(test.offered): resource.MustParse("8"),
				"nvidia.com/gpu.none":             resource.MustParse("0"),
			}}})
			if err != nil {
				t.Fatal(err)
			}
			if got := devicePluginResources(kept.(*corev1.Node), test.sandbox); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A kubelet before 1.36 is too old. A version that cannot be read is not.
func TestOldKubelet(t *testing.T) {
	for reported, want := range map[string]bool{
		"v1.33.1": true, "v1.34.4": true, "v1.35.4": true, "v1.35.4-gke.1000": true, "v1.35.4-eks-abc": true, "v1.35.0+k3s1": true, "v1.35+": true,
		"v1.36.0": false, "v1.36.0-rc.1": false, "v1.37.2": false, "v1.37.2-eks-abc": false, "v1.100.0": false, "v2.0.0": false, "": false, "unknown": false,
	} {
		kept, err := informers.TrimNode(&corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: reported}}})
		if err != nil {
			t.Fatal(err)
		}
		got := ObserveNode(kept.(*corev1.Node)).OldKubelet
		if got != "" != want || want && got != reported {
			t.Errorf("%q: too old is %q, want %t", reported, got, want)
		}
	}
}
