package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Each component can be switched off alone: its objects go, and nothing else.
func TestSwitchedOffAlone(t *testing.T) {
	off := v1alpha1.Component{Enabled: new(false)}
	for _, c := range []struct {
		name   string
		change func(*render.Input)
		gone   []string
	}{
		{"discovery", spec(func(s *v1alpha1.ClusterPolicySpec) { s.Discovery.Component = off }), []string{"DaemonSet/tessera-discovery"}},
		{"driver", func(in *render.Input) {
			in.Policy.Spec.Driver.Component = off
			// Nodes have given it back: none is granted it any more.
			in.Drivers = slices.DeleteFunc(in.Drivers, func(s render.DriverSet) bool { return s.Owner == "ClusterPolicy/default" && !s.VGPU })
		}, []string{"DaemonSet/tessera-driver-181f810a14a9"}},
		{"vgpuManager", func(in *render.Input) {
			in.Policy.Spec.VGPUManager.Component = off
			in.Drivers = slices.DeleteFunc(in.Drivers, func(s render.DriverSet) bool { return s.VGPU })
		}, []string{"DaemonSet/tessera-vgpu-manager-34d797a269da", "DaemonSet/tessera-vgpu-device-manager"}},
		{"vgpuDeviceManager", spec(func(s *v1alpha1.ClusterPolicySpec) { s.VGPUDeviceManager.Component = off }), []string{"DaemonSet/tessera-vgpu-device-manager"}},
		{"toolkit", spec(func(s *v1alpha1.ClusterPolicySpec) { s.Toolkit.Component = off }), []string{"DaemonSet/tessera-toolkit", "RuntimeClass/nvidia"}},
		{"nodeAgent", spec(func(s *v1alpha1.ClusterPolicySpec) { s.NodeAgent.Component = off }), []string{
			"ConfigMap/tessera-node-config", "DaemonSet/tessera-node", "ConfigMap/tessera-node-config-mig", "DaemonSet/tessera-node-mig",
			"ConfigMap/tessera-node-config-sandbox", "DaemonSet/tessera-node-sandbox",
		}},
		{"sandboxWorkloads", spec(func(s *v1alpha1.ClusterPolicySpec) { s.SandboxWorkloads.Enabled = false }), []string{
			"ConfigMap/tessera-node-config-sandbox", "DaemonSet/tessera-node-sandbox",
		}},
		{"scheduler", spec(func(s *v1alpha1.ClusterPolicySpec) { s.Scheduler.Component = off }), []string{
			"ConfigMap/tessera-scheduler-config", "Deployment/tessera-scheduler", "PodDisruptionBudget/tessera-scheduler", "DeviceTaintRule/scheduler.gpu.tessera.dev",
			"MutatingAdmissionPolicyBinding/schedulername.gpu.tessera.dev",
		}},
		{"dcgm", spec(func(s *v1alpha1.ClusterPolicySpec) { s.DCGM = off }), []string{
			"DaemonSet/tessera-dcgm", "Service/tessera-dcgm", "ResourceClaimTemplate/tessera-dcgm",
		}},
		{"dcgmExporter", spec(func(s *v1alpha1.ClusterPolicySpec) { s.DCGMExporter.Component = off }), []string{
			"DaemonSet/tessera-dcgm-exporter", "Service/tessera-dcgm-exporter", "ResourceClaimTemplate/tessera-dcgm-exporter", "ServiceMonitor/tessera-dcgm-exporter",
		}},
		{"validator", spec(func(s *v1alpha1.ClusterPolicySpec) { s.Validator.Component = off }), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, in := titles(objects(t, everything())), everything()
			c.change(&in)
			after := titles(objects(t, in))
			var gone []string
			for _, name := range before {
				if !slices.Contains(after, name) {
					gone = append(gone, name)
				}
			}
			if diff := cmp.Diff(c.gone, gone); diff != "" {
				t.Errorf("what goes: -want +got\n%s", diff)
			}
			if len(after) != len(before)-len(gone) {
				t.Errorf("something new is there: %v", after)
			}
		})
	}
}

// Without a kind in the cluster, an object of it is not written.
func TestServiceMonitorOnlyWhereItIsServed(t *testing.T) {
	in := everything()
	in.ServiceMonitors = false
	if slices.ContainsFunc(titles(objects(t, in)), func(name string) bool { return strings.HasPrefix(name, "ServiceMonitor/") }) {
		t.Error("a ServiceMonitor is rendered for a cluster without the kind")
	}
}
