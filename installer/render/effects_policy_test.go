package render_test

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// policyEffects are those of ClusterPolicy's fields.
func policyEffects() []effect {
	return slices.Concat(commonEffects(), componentEffects(), operandEffects(), driverEffects("spec.driver", policyDriver),
		configEffects("spec.nodeAgent.config", "ConfigMap/tessera-node-config", func(s *v1alpha1.ClusterPolicySpec) *v1alpha1.NodeConfigSpec { return s.NodeAgent.Config }),
		configEffects("spec.nodeAgent.pools[].config", "ConfigMap/tessera-node-config-mig", func(s *v1alpha1.ClusterPolicySpec) *v1alpha1.NodeConfigSpec { return s.NodeAgent.Pools[0].Config }))
}

// spec makes a change of the input from one of the policy.
func spec(change func(*v1alpha1.ClusterPolicySpec)) func(*render.Input) {
	return func(in *render.Input) { change(&in.Policy.Spec) }
}

// commonEffects are those of what all operands have in common.
func commonEffects() []effect {
	const dcgm, toolkit, driver, agent = "DaemonSet/tessera-dcgm", "DaemonSet/tessera-toolkit", "DaemonSet/tessera-driver-*", "DaemonSet/tessera-node"
	p := func(change func(*v1alpha1.HostPathsSpec)) func(*render.Input) {
		return spec(func(s *v1alpha1.ClusterPolicySpec) { change(&s.HostPaths) })
	}
	return []effect{
		{field: "spec.daemonSets.labels", object: dcgm, path: ".spec.template.metadata.labels.own", want: "yes",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.DaemonSets.Labels = map[string]string{"own": "yes"} })},
		{field: "spec.daemonSets.annotations", object: driver, path: ".metadata.annotations.own", want: "yes",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.DaemonSets.Annotations = map[string]string{"own": "yes"} })},
		{field: "spec.daemonSets.tolerations", object: toolkit, path: pod + ".tolerations[*].key", want: "own",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.DaemonSets.Tolerations = taste().Tolerations })},
		{field: "spec.daemonSets.priorityClassName", object: agent, path: pod + ".priorityClassName", want: "own",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.DaemonSets.PriorityClassName = "own" })},
		{field: "spec.daemonSets.imagePullSecrets", object: "Deployment/tessera-scheduler", path: pod + ".imagePullSecrets[*].name", want: "own",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.DaemonSets.ImagePullSecrets = []string{"own"} })},
		{field: "spec.hostPaths.root", object: driver, path: pod + `.volumes[?(@.name=="host")].hostPath.path`, want: "/own", change: p(func(h *v1alpha1.HostPathsSpec) { h.Root = "/own" })},
		{field: "spec.hostPaths.driverInstallDir", object: driver, path: pod + `.volumes[?(@.name=="driver-root")].hostPath.path`, want: "/own", change: p(func(h *v1alpha1.HostPathsSpec) { h.DriverInstallDir = "/own" })},
		{field: "spec.hostPaths.kubeletRoot", object: agent, path: pod + `.volumes[?(@.name=="plugins")].hostPath.path`, want: "/own/plugins", change: p(func(h *v1alpha1.HostPathsSpec) { h.KubeletRoot = "/own" })},
		{field: "spec.hostPaths.cdi", object: agent, path: at("agent", ".args[-1:]"), want: "--cdi-dir=/own", change: p(func(h *v1alpha1.HostPathsSpec) { h.CDI = "/own" })},
		{field: "spec.hostPaths.proc", object: "ConfigMap/tessera-node-config", file: "node.yaml", path: ".roots.proc", want: "/host/own", change: p(func(h *v1alpha1.HostPathsSpec) { h.Proc = "/own" })},
		{field: "spec.hostPaths.sys", object: driver, path: at("unload", ".args[-1:]"), want: "--simulated=/host/own/bin/kernel", change: p(func(h *v1alpha1.HostPathsSpec) { h.Sys = "/own/sys" })},
		{field: "spec.hostPaths.dev", object: "DaemonSet/tessera-discovery", path: at("discovery", ".args[4]"), want: "--dev-root=/host/own", change: p(func(h *v1alpha1.HostPathsSpec) { h.Dev = "/own" })},
		{field: "spec.nodeSelector", object: "DaemonSet/tessera-discovery", want: "own",
			path:   `.spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values[0]`,
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.NodeSelector.MatchLabels["pool"] = "own" })},
	}
}

// componentEffects are those of what every component has.
func componentEffects() []effect {
	as := func(field func(*v1alpha1.ClusterPolicySpec) *v1alpha1.Component) func(*render.Input) *v1alpha1.Component {
		return func(in *render.Input) *v1alpha1.Component { return field(&in.Policy.Spec) }
	}
	var all []effect
	for _, c := range []component{
		{"spec.discovery", "DaemonSet/tessera-discovery", "discovery", "registry.example/own/image", as(func(s *v1alpha1.ClusterPolicySpec) *v1alpha1.Component { return &s.Discovery.Component }), wholeObject},
		{"spec.toolkit", "DaemonSet/tessera-toolkit", "toolkit", "registry.example/own/image", as(func(s *v1alpha1.ClusterPolicySpec) *v1alpha1.Component { return &s.Toolkit.Component }), wholeObject},
		{"spec.nodeAgent", "DaemonSet/tessera-node", "agent", "registry.example/own/image", as(func(s *v1alpha1.ClusterPolicySpec) *v1alpha1.Component { return &s.NodeAgent.Component }), wholeObject},
		{"spec.scheduler", "Deployment/tessera-scheduler", "scheduler", "registry.example/own/image", as(func(s *v1alpha1.ClusterPolicySpec) *v1alpha1.Component { return &s.Scheduler.Component }), wholeObject},
		{"spec.dcgm", "DaemonSet/tessera-dcgm", "nvidia-dcgm-ctr", "registry.example/own/image", as(func(s *v1alpha1.ClusterPolicySpec) *v1alpha1.Component { return &s.DCGM }), wholeObject},
		{"spec.dcgmExporter", "DaemonSet/tessera-dcgm-exporter", "nvidia-dcgm-exporter", "registry.example/own/image", as(func(s *v1alpha1.ClusterPolicySpec) *v1alpha1.Component { return &s.DCGMExporter.Component }), wholeObject},
		{"spec.vgpuManager", "DaemonSet/tessera-vgpu-manager-*", "nvidia-vgpu-manager-ctr", "registry.example/own/image:1-ubuntu24.04", as(func(s *v1alpha1.ClusterPolicySpec) *v1alpha1.Component { return &s.VGPUManager.Component }), elsewhereSwitched},
		{"spec.vgpuDeviceManager", "DaemonSet/tessera-vgpu-device-manager", "nvidia-vgpu-device-manager", "registry.example/own/image", as(func(s *v1alpha1.ClusterPolicySpec) *v1alpha1.Component { return &s.VGPUDeviceManager.Component }), wholeObject},
	} {
		all = append(all, c.effects()...)
	}
	return all
}

// operandEffects are those of what only one operand has.
func operandEffects() []effect {
	const exporter, monitor, config = "DaemonSet/tessera-dcgm-exporter", "ServiceMonitor/tessera-dcgm-exporter", "ConfigMap/tessera-scheduler-config"
	return []effect{
		{field: "spec.discovery.source", object: "DaemonSet/tessera-discovery", want: "true",
			path:   `.spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[?(@.key=="feature.node.kubernetes.io/pci-10de.present")].values[0]`,
			base:   func() render.Input { in := base(); in.Policy.Spec.Discovery.Source = v1alpha1.DiscoverScan; return in },
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.Discovery.Source = v1alpha1.DiscoverNFD })},
		{field: "spec.toolkit.runtimeClass", object: "RuntimeClass/own", want: "true", change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.Toolkit.RuntimeClass = "own" })},
		{field: "spec.toolkit.containerdConfig", object: "DaemonSet/tessera-toolkit", path: at("toolkit", ".args[7]"), want: "--containerd-config=/own",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.Toolkit.ContainerdConfig = "/own" })},
		{field: "spec.nodeAgent.pools[].name", object: "DaemonSet/tessera-node-own", path: pod + `.nodeSelector.tessera\.dev/agent`, want: "own",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.NodeAgent.Pools[0].Name = "own" })},
		{field: "spec.scheduler.mode", object: config, file: "config.yaml", path: ".profiles[*].schedulerName", want: "default-scheduler tessera-scheduler",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.Scheduler.Mode = v1alpha1.SchedulerReplace })},
		{field: "spec.scheduler.replicas", object: "Deployment/tessera-scheduler", path: ".spec.replicas", want: "3",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.Scheduler.Replicas = new(int32(3)) })},
		{field: "spec.scheduler.preemption", object: config, file: "config.yaml", path: ".profiles[0].pluginConfig[0].args.preemption", want: "Enabled",
			base:   plain,
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.Scheduler.Preemption = true })},
		{field: "spec.dcgmExporter.config", object: exporter, path: at("nvidia-dcgm-exporter", `.env[?(@.name=="DCGM_EXPORTER_COLLECTORS")].value`), want: "/etc/tessera-metrics/dcgm-metrics.csv",
			base:   plain,
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.DCGMExporter.Config = "own" })},
		{field: "spec.dcgmExporter.serviceMonitor", object: monitor, want: "false", change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.DCGMExporter.ServiceMonitor = false })},
		{field: "spec.dcgmExporter.interval", object: monitor, path: ".spec.endpoints[0].interval", want: "60s",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.DCGMExporter.Interval = &metav1.Duration{Duration: time.Minute} })},
		{field: "spec.vgpuDeviceManager.config.name", object: "DaemonSet/tessera-vgpu-device-manager", path: pod + `.volumes[?(@.name=="vgpu-config")].configMap.name`, want: "own",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.VGPUDeviceManager.Config.Name = "own" })},
		{field: "spec.vgpuDeviceManager.config.default", object: "DaemonSet/tessera-vgpu-device-manager", want: "A40-8Q",
			path:   at("nvidia-vgpu-device-manager", `.env[?(@.name=="DEFAULT_VGPU_CONFIG")].value`),
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.VGPUDeviceManager.Config.Default = "A40-8Q" })},
		{field: "spec.sandboxWorkloads.enabled", object: "DaemonSet/tessera-node-sandbox", want: "false",
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { s.SandboxWorkloads.Enabled = false })},
	}
}

// configEffects are those of a NodeConfig.
func configEffects(field, object string, in func(*v1alpha1.ClusterPolicySpec) *v1alpha1.NodeConfigSpec) []effect {
	var all []effect
	judged := func(change func(*v1alpha1.XIDRule)) func(*v1alpha1.NodeConfigSpec) {
		return func(c *v1alpha1.NodeConfigSpec) {
			rule := v1alpha1.XIDRule{Code: 13, Severity: "Warning"}
			change(&rule)
			c.Health.XIDs = []v1alpha1.XIDRule{rule}
		}
	}
	for _, c := range []struct {
		field, want string
		change      func(*v1alpha1.NodeConfigSpec)
	}{
		{"attributes", "Full", func(c *v1alpha1.NodeConfigSpec) { c.Attributes = v1alpha1.Full }},
		{"consumableShares", "memory", func(c *v1alpha1.NodeConfigSpec) { c.ConsumableShares = v1alpha1.ConsumableMemory }},
		{"sharing.requireEnforcement", "true", func(c *v1alpha1.NodeConfigSpec) { c.Sharing.RequireEnforcement = true }},
		{"driverName", "own.example", func(c *v1alpha1.NodeConfigSpec) { c.DriverName = "own.example" }},
		{"profiles", `["3g.40gb"]`, func(c *v1alpha1.NodeConfigSpec) { c.Profiles = []string{"3g.40gb"} }},
		{"shapes", `["gpu"]`, func(c *v1alpha1.NodeConfigSpec) { c.Shapes = []v1alpha1.Shape{v1alpha1.ShapeGPU} }},
		{"shares", "7", func(c *v1alpha1.NodeConfigSpec) { c.Shares = 7 }},
		{"roots.host", "/own", func(c *v1alpha1.NodeConfigSpec) { c.Roots.Host = "/own" }},
		{"roots.proc", "/own", func(c *v1alpha1.NodeConfigSpec) { c.Roots.Proc = "/own" }},
		{"roots.sys", "/own", func(c *v1alpha1.NodeConfigSpec) { c.Roots.Sys = "/own" }},
		{"roots.dev", "/own", func(c *v1alpha1.NodeConfigSpec) { c.Roots.Dev = "/own" }},
		{"roots.driver", "/own", func(c *v1alpha1.NodeConfigSpec) { c.Roots.Driver = "/own" }},
		{"health.evict", "true", func(c *v1alpha1.NodeConfigSpec) { c.Health.Evict = true }},
		{"health.quietPeriod", "7m0s", func(c *v1alpha1.NodeConfigSpec) { c.Health.QuietPeriod = &metav1.Duration{Duration: 7 * time.Minute} }},
		{"health.xids[].code", "31", judged(func(r *v1alpha1.XIDRule) { r.Code = 31 })},
		{"health.xids[].severity", "Fatal", judged(func(r *v1alpha1.XIDRule) { r.Severity = "Fatal" })},
		{"health.xids[].remedy", "Reboot", judged(func(r *v1alpha1.XIDRule) { r.Remedy = "Reboot" })},
	} {
		all = append(all, effect{
			field: field + "." + c.field, object: object, file: "node.yaml", path: "." + strings.ReplaceAll(c.field, "[]", "[*]"), want: c.want,
			change: spec(func(s *v1alpha1.ClusterPolicySpec) { c.change(in(s)) }),
		})
	}
	return all
}

// policyDriver changes the driver of the policy, ownDriver that of an NVIDIADriver: the installer renders both alike.
func policyDriver(change func(*v1alpha1.DriverSpec)) func(*render.Input) {
	return func(in *render.Input) {
		change(&in.Policy.Spec.Driver)
		in.Drivers[0].Spec = in.Policy.Spec.Driver
	}
}

func ownDriver(change func(*v1alpha1.DriverSpec)) func(*render.Input) {
	return func(in *render.Input) {
		in.Drivers[0].Owner = "own"
		change(&in.Drivers[0].Spec)
	}
}

// driverEffects are those of a driver's fields in both kinds.
func driverEffects(field string, with func(func(*v1alpha1.DriverSpec)) func(*render.Input)) []effect {
	const driver, main = "DaemonSet/tessera-driver-*", "nvidia-driver-ctr"
	in := func(part func(*v1alpha1.DriverSpec) *v1alpha1.Component) func(*render.Input) *v1alpha1.Component {
		return func(in *render.Input) *v1alpha1.Component {
			// The component that is returned is changed in place.
			with(func(*v1alpha1.DriverSpec) {})(in)
			return part(&in.Drivers[0].Spec)
		}
	}
	file := func(name string) string { return at(main, `.volumeMounts[?(@.name=="`+name+`")].subPath`) }
	env := func(name string) string { return at(main, `.env[?(@.name=="`+name+`")].value`) }
	volume := pod + `.volumes[?(@.name=="`
	var all []effect
	for _, c := range []component{
		{field, driver, main, "registry.example/own/image:580.105.08-ubuntu24.04", in(func(d *v1alpha1.DriverSpec) *v1alpha1.Component { return &d.Component }), elsewhereSwitched},
		{field + ".rdma", driver, "nvidia-peermem-ctr", "registry.example/own/image", in(func(d *v1alpha1.DriverSpec) *v1alpha1.Component { return &d.RDMA.Component }), oneContainer},
		{field + ".gds", driver, "nvidia-fs-ctr", "registry.example/own/image:1-ubuntu24.04", in(func(d *v1alpha1.DriverSpec) *v1alpha1.Component { return &d.GDS }), oneContainer},
		{field + ".gdrcopy", driver, "nvidia-gdrcopy-ctr", "registry.example/own/image:1-ubuntu24.04", in(func(d *v1alpha1.DriverSpec) *v1alpha1.Component { return &d.GDRCopy }), oneContainer},
	} {
		all = append(all, c.effects()...)
	}
	for _, e := range []effect{
		{field: "version", path: at(main, ".image"), want: "registry.example:5000/nvidia/driver:570.124.06-ubuntu24.04", change: with(func(d *v1alpha1.DriverSpec) { d.Version = "570.124.06" })},
		{field: "usePrecompiled", path: at(main, ".image"), want: "registry.example:5000/nvidia/driver:580.105.08-6.8.0-60-generic-ubuntu24.04", change: with(func(d *v1alpha1.DriverSpec) { d.UsePrecompiled = true })},
		{field: "kernelModuleType", path: env("KERNEL_MODULE_TYPE"), want: "proprietary", change: with(func(d *v1alpha1.DriverSpec) { d.KernelModuleType = v1alpha1.ModulesProprietary })},
		{field: "startupTimeout", path: at(main, ".startupProbe.failureThreshold"), want: "60", change: with(func(d *v1alpha1.DriverSpec) { d.StartupTimeout = &metav1.Duration{Duration: 5 * time.Minute} })},
		{field: "rdma.useHostMOFED", path: env("USE_HOST_MOFED"), want: "", change: with(func(d *v1alpha1.DriverSpec) { d.RDMA.UseHostMOFED = false })},
		{field: "kernelModuleConfig", path: file("module-config"), want: "", change: with(func(d *v1alpha1.DriverSpec) { d.KernelModuleConfig = "" })},
		{field: "repoConfig", path: volume + `repositories")].configMap.name`, want: "modules", change: with(func(d *v1alpha1.DriverSpec) { d.RepoConfig = "modules" })},
		{field: "certConfig", path: volume + `certificates")].configMap.name`, want: "modules", change: with(func(d *v1alpha1.DriverSpec) { d.CertConfig = "modules" })},
		{field: "licensingSecret", path: volume + `license")].secret.secretName`, want: "environment", change: with(func(d *v1alpha1.DriverSpec) { d.LicensingSecret = "environment" })},
		{field: "secretEnv", path: at(main, ".envFrom[0].secretRef.name"), want: "license", change: with(func(d *v1alpha1.DriverSpec) { d.SecretEnv = "license" })},
	} {
		e.field, e.object = field+"."+e.field, driver
		all = append(all, e)
	}
	return all
}
