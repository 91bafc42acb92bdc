package render_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// release are images as a release names them.
func release() render.Images {
	return render.Images{
		Node: "registry.example/tessera/node:v1", Scheduler: "registry.example/tessera/scheduler:v1",
		Driver: "registry.example:5000/nvidia/driver", DriverVersion: "580.105.08",
		GDS: "registry.example/nvidia/nvidia-fs:2.26.6", GDRCopy: "registry.example/nvidia/gdrdrv:v2.5.1",
		DCGM: "registry.example/nvidia/dcgm:4.5.0", DCGMExporter: "registry.example/nvidia/dcgm-exporter:4.5.0",
		VGPUDeviceManager: "registry.example/nvidia/vgpu-device-manager:v0.5.0",
	}
}

// plain is a cluster whose administrator decided nothing, with one kind of node.
func plain() render.Input {
	return render.Input{
		Namespace: "tessera-system",
		Images:    release(),
		Drivers:   []render.DriverSet{{Owner: "ClusterPolicy/default", Host: ubuntu()}},
		Contents:  map[string]string{},
	}
}

func ubuntu() render.Host {
	return render.Host{OS: "ubuntu24.04", Kernel: "6.8.0-60-generic", Architecture: "amd64"}
}

func rhel() render.Host {
	return render.Host{OS: "rhel9.6", Kernel: "5.14.0-570.12.1.el9_6.x86_64", Architecture: "amd64"}
}

// everything is a cluster in which every component is on.
func everything() render.Input {
	in := plain()
	spec := &in.Policy.Spec
	on := v1alpha1.Component{Enabled: new(true)}
	spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "gpu"}}
	spec.Driver.RDMA = v1alpha1.RDMASpec{Component: on, UseHostMOFED: true}
	spec.Driver.GDS, spec.Driver.GDRCopy, spec.DCGM = on, on, on
	spec.Driver.KernelModuleType = v1alpha1.ModulesOpen
	spec.Driver.KernelModuleConfig, spec.Driver.RepoConfig, spec.Driver.CertConfig = "modules", "repositories", "certificates"
	spec.Driver.LicensingSecret, spec.Driver.SecretEnv = "license", "environment"
	spec.Toolkit.RuntimeClass = "nvidia"
	spec.NodeAgent.Config = &v1alpha1.NodeConfigSpec{Shares: 4}
	spec.NodeAgent.Pools = []v1alpha1.NodePool{{
		Name: "mig", NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "mig"}},
		Config: &v1alpha1.NodeConfigSpec{Shapes: []v1alpha1.Shape{v1alpha1.ShapeMIG, v1alpha1.ShapeMonitor}, Profiles: []string{"1g.10gb"}},
	}}
	spec.Scheduler.Preemption = true
	spec.DCGMExporter.ServiceMonitor, spec.DCGMExporter.Config = true, "metrics"
	spec.SandboxWorkloads = v1alpha1.SandboxWorkloadsSpec{Enabled: true, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "vm"}}}
	spec.VGPUManager = v1alpha1.VGPUManagerSpec{
		Component:    v1alpha1.Component{Enabled: new(true), Image: "registry.example/own/vgpu-manager:580.105.06"},
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "vgpu"}},
	}
	spec.VGPUDeviceManager.Config.Name = "vgpu-devices"
	in.Drivers = []render.DriverSet{
		{Owner: "ClusterPolicy/default", Host: ubuntu(), Spec: spec.Driver},
		{Owner: "rhel", Host: rhel(), Spec: v1alpha1.DriverSpec{UsePrecompiled: true, Version: "580"}},
		{Owner: "ClusterPolicy/default", Host: ubuntu(), VGPU: true},
	}
	in.Contents = map[string]string{
		"ConfigMap/modules": "c1", "ConfigMap/repositories": "c2", "ConfigMap/certificates": "c3", "ConfigMap/metrics": "c4", "ConfigMap/vgpu-devices": "c5",
		"Secret/license": "s1", "Secret/environment": "s2",
	}
	in.Keys = map[string][]string{
		"ConfigMap/modules": {"nvidia.conf"}, "ConfigMap/repositories": {"mirror.list"}, "ConfigMap/certificates": {"mirror.crt"},
		"ConfigMap/metrics": {"dcgm-metrics.csv"}, "Secret/license": {"client_configuration_token.tok", "gridd.conf"},
	}
	in.ServiceMonitors, in.SchedulerAvailable = true, true
	return in
}

// simulated is a cluster whose hardware is simulated, and whose host keeps things elsewhere.
func simulated() render.Input {
	in := plain()
	in.Policy.Spec.HostPaths = v1alpha1.HostPathsSpec{
		DriverInstallDir: "/run/lab/driver", KubeletRoot: "/data/kubelet", CDI: "/run/lab/cdi",
		Proc: "/run/lab/proc", Sys: "/run/lab/sys", Dev: "/run/lab/root",
	}
	in.Policy.Spec.Driver.StartupTimeout = &metav1.Duration{Duration: time.Minute}
	in.Drivers[0].Spec = in.Policy.Spec.Driver
	return in
}

// taste is a component in which everything is decided.
func taste() v1alpha1.Component {
	return v1alpha1.Component{
		Enabled: new(true), ImagePullPolicy: corev1.PullAlways, ImagePullSecrets: []string{"own"},
		Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
		Env:       []corev1.EnvVar{{Name: "OWN", Value: "yes"}}, Args: []string{"--own"},
		Tolerations: []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}},
	}
}
