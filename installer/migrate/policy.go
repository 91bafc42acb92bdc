package migrate

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// The node label of the GPU Operator with the workload type of a node, and its values.
const (
	workloadLabel       = "nvidia.com/gpu.workload.config"
	workloadContainer   = "container"
	workloadPassthrough = "vm-passthrough"
	workloadVGPU        = "vm-vgpu"
)

// policyRules are those of a ClusterPolicy; values of the chart have the same fields.
func policyRules() []rule {
	rules := []rule{
		{"operator.defaultRuntime", none("has no counterpart: devices are injected by CDI, independent of the default runtime")},
		{"operator.runtimeClass", into(func(c *conversion) *string { return &c.policy.Toolkit.RuntimeClass })},
		{"operator.initContainer", none("has no counterpart: init containers run Tessera's node image")},
		{"operator.labels", none(installerPod)}, {"operator.annotations", none(installerPod)}, {"operator.metrics", none(installerPod)},
		{"operator.use_ocp_driver_toolkit", met(false, "has no counterpart: OpenShift's driver toolkit is not used. Use precompiled drivers, or keep the drivers of the hosts")},
		{"hostPaths.rootFS", into(func(c *conversion) *string { return &c.policy.HostPaths.Root })},
		{"hostPaths.driverInstallDir", into(func(c *conversion) *string { return &c.policy.HostPaths.DriverInstallDir })},
		{"hostPaths.kubeletRootDir", into(func(c *conversion) *string { return &c.policy.HostPaths.KubeletRoot })},
		{"driver.enabled", func(c *conversion, value any) string {
			if c.at("driver.useNvidiaDriverCRD") == true {
				return "" // the NVIDIADrivers decide
			}
			return into(func(c *conversion) **bool { return &c.driver.Enabled })(c, value)
		}},
		{"driver.useNvidiaDriverCRD", func(c *conversion, value any) string {
			if value == true {
				c.driver.Enabled = new(false)
			}
			return ""
		}},
		{"driver.useOpenKernelModules", func(c *conversion, value any) string {
			if kind := c.textAt("driver.kernelModuleType"); value == true && (kind == "" || kind == "auto") {
				c.driver.KernelModuleType = v1alpha1.ModulesOpen
			}
			return ""
		}},
		{"toolkit.enabled", into(func(c *conversion) **bool { return &c.policy.Toolkit.Enabled })},
		{"toolkit.env", toolkitEnv},
		{"toolkit.installDir", none("has no counterpart: only one static hook is installed on hosts")},
		{"validator", none("configures NVIDIA's validator. Tessera validates nodes with claims; spec.validator has enabled, mig, timeout, env, args and resources")},
		{"cdi.enabled", met(true, "has no counterpart: CDI is the only way in which devices are injected into containers")},
		{"cdi.default", none("has no counterpart, and no effect in the GPU Operator either")},
		{"cdi.nriPluginEnabled", met(false, "has no counterpart: devices are injected by DRA and CDI without an NRI plugin")},
		{"psp", none("has no counterpart, and no effect in the GPU Operator either")},
		{"psa.enabled", none("has no counterpart: if Pod Security is enforced, label the installer's namespace pod-security.kubernetes.io/enforce: privileged")},
		{"gfd.enabled", into(func(c *conversion) **bool { return &c.policy.FeatureLabels.Enabled })},
		{"nodeStatusExporter", none("has no counterpart: the installer exports the state of each node as metrics, and GPUNodes have it as conditions")},
		{"mig.strategy", none("has no counterpart: each MIG profile has a DeviceClass and the extended resource nvidia.com/mig-<profile>, and MIG devices are created for claims. " +
			"Pods that requested MIG devices as nvidia.com/gpu (strategy single) must request the profile")},
		{"migManager.config", none("has no direct counterpart: pass its file with --mig-config, and each layout becomes a pool of spec.nodeAgent.pools")},
		{"migManager.gpuClientsConfig", none("has no counterpart: the agent drains claims and stops no host services")},
	}
	rules = append(rules, sandboxRules()...)
	rules = append(rules, daemonSetRules()...)
	rules = append(rules, driverRules("driver")...)
	rules = append(rules, componentRules("gds", gds)...)
	rules = append(rules, componentRules("gdrcopy", gdrcopy)...)
	rules = append(rules, pluginRules()...)
	rules = append(rules, monitoringRules()...)
	for _, program := range []string{"toolkit", "devicePlugin", "gfd", "migManager"} {
		rules = append(rules, foreignRules(program)...)
	}
	return rules
}

// sandboxRules are those of what virtual machines get.
func sandboxRules() []rule {
	rules := []rule{
		{"vfioManager", none("has no counterpart: the node agent binds GPUs to vfio-pci on the nodes that spec.sandboxWorkloads selects")},
		{"sandboxDevicePlugin", none(sandboxPlugin)}, {"kataSandboxDevicePlugin", none(sandboxPlugin)},
		{"vgpuDeviceManager.config.name", vgpuConfigMap},
		{"vgpuDeviceManager.config.default", into(func(c *conversion) *string { return &c.policy.VGPUDeviceManager.Config.Default })},
		{"kataManager", none("has no counterpart, and no effect in the GPU Operator either")},
		{"ccManager", none("has no counterpart: confidential computing modes are not managed. Set them on the hosts")},
		{"sandboxWorkloads.enabled", func(c *conversion, value any) string { return c.sandbox(value) }},
		{"sandboxWorkloads.defaultWorkload", func(*conversion, any) string { return "" }}, // read by sandbox
		{"sandboxWorkloads.mode", none("has no counterpart: KubeVirt and Kata use the same claims with the shape vfio")},
		{"vgpuManager.driverManager", none("has no counterpart: modules are unloaded by Tessera's node image")},
		{"vgpuManager.kernelModuleConfig", none("has no counterpart: set module parameters in the image's /etc/modprobe.d")},
	}
	rules = append(rules, componentRules("vgpuManager", func(c *conversion) *v1alpha1.Component { return &c.policy.VGPUManager.Component })...)
	return append(rules, componentRules("vgpuDeviceManager", func(c *conversion) *v1alpha1.Component { return &c.policy.VGPUDeviceManager.Component })...)
}

// vgpuConfigMap takes over the ConfigMap of vGPU configurations. The GPU Operator creates one of a fixed name, whose content is that of policies without a name.
func vgpuConfigMap(c *conversion, value any) string {
	if value == "default-vgpu-devices-config" {
		return ""
	}
	return into(func(c *conversion) *string { return &c.policy.VGPUDeviceManager.Config.Name })(c, value)
}

const (
	installerPod  = "configures the operator's pod and metrics. Those of the installer are values of Tessera's chart"
	sandboxPlugin = "has no counterpart: the node agent publishes GPUs with the shape vfio for both KubeVirt and Kata"
)

// foreignRules are those of an operand in whose place another program runs here.
func foreignRules(path string) []rule {
	var rules []rule
	for _, field := range []string{"repository", "image", "version", "imagePullPolicy", "imagePullSecrets", "resources", "args", "env"} {
		rules = append(rules, rule{path + "." + field, none(otherProgram)})
	}
	return append(rules, rule{path + ".hostNetwork", none(noHostNet)})
}

// daemonSetRules are those of what all operands have in common.
func daemonSetRules() []rule {
	return []rule{
		{"daemonsets.labels", func(c *conversion, value any) string {
			return c.own("daemonsets.labels", value, &c.policy.DaemonSets.Labels)
		}},
		{"daemonsets.annotations", func(c *conversion, value any) string {
			return c.own("daemonsets.annotations", value, &c.policy.DaemonSets.Annotations)
		}},
		{"daemonsets.tolerations", func(c *conversion, value any) string {
			return into(func(c *conversion) *v1alpha1.DaemonSetsSpec { return &c.policy.DaemonSets })(c, map[string]any{"tolerations": value})
		}},
		{"daemonsets.priorityClassName", into(func(c *conversion) *string { return &c.policy.DaemonSets.PriorityClassName })},
		{"daemonsets.imagePullSecrets", into(func(c *conversion) *[]string { return &c.policy.DaemonSets.ImagePullSecrets })},
		{"daemonsets.updateStrategy", none("has no counterpart: spec.upgrade controls driver upgrades, all other operands are rolled out by their DaemonSets")},
		{"daemonsets.rollingUpdate", none("has no counterpart: spec.upgrade.maxUnavailable applies to drivers, all other operands do not interrupt GPUs")},
		{"daemonsets.podSecurityContext", none("has no counterpart: each operand runs with the minimum privileges")},
	}
}

// own takes over labels or annotations but those that are the installer's own.
func (c *conversion) own(path string, value any, target *map[string]string) string {
	object, _ := value.(map[string]any)
	for _, key := range keys(object) {
		text := fmt.Sprint(object[key])
		if strings.HasPrefix(key, "tessera.dev/") || strings.HasPrefix(key, "app.kubernetes.io/") || key == "app" || strings.HasPrefix(key, "helm.sh/") {
			c.refuse(path+"."+key, text, "is set by the installer, or belongs to the other chart")
			continue
		}
		if *target == nil {
			*target = map[string]string{}
		}
		(*target)[key] = text
	}
	return ""
}

// pluginRules are those of what the node agent replaces.
func pluginRules() []rule {
	return []rule{
		{"devicePlugin.enabled", met(true, "has no counterpart: the node agent replaces the plugin. To disable it, set spec.nodeAgent.enabled: false")},
		{"devicePlugin.config", none("names a configuration of the device plugin. Time slicing and MPS are shapes: spec.nodeAgent.config.shares is the number of shares of a GPU, " +
			"for some nodes in spec.nodeAgent.pools; claims choose the class timeshare.tessera.dev or mps.tessera.dev")},
		{"devicePlugin.mps", none("has no counterpart: MPS daemons keep their files in the node agent's directory")},
		{"migManager.enabled", none("has no counterpart: the node agent creates MIG devices for claims. The offered profiles are spec.nodeAgent.config.profiles")},
	}
}

// monitoringRules are those of DCGM and its exporter.
func monitoringRules() []rule {
	exporter := func(c *conversion) *v1alpha1.Component { return &c.policy.DCGMExporter.Component }
	pods := "has no counterpart: the exporter has no permission to read pods. The node agent's metrics have the pods and claims of each device"
	rules := []rule{
		{"dcgm.hostPort", none("has no counterpart: the host engine is reached through its Service, no port of the host is opened")},
		{"dcgmExporter.config.name", into(func(c *conversion) *string { return &c.policy.DCGMExporter.Config })},
		{"dcgmExporter.config.create", none(metricsList)}, {"dcgmExporter.config.data", none(metricsList)},
		{"dcgmExporter.serviceMonitor.enabled", into(func(c *conversion) *bool { return &c.policy.DCGMExporter.ServiceMonitor })},
		{"dcgmExporter.serviceMonitor.interval", scrapeInterval},
		{"dcgmExporter.serviceMonitor.honorLabels", none(monitor)}, {"dcgmExporter.serviceMonitor.additionalLabels", none(monitor)},
		{"dcgmExporter.serviceMonitor.relabelings", none(monitor)}, {"dcgmExporter.serviceMonitor.metricRelabelings", none(monitor)},
		{"dcgmExporter.service", none("has no counterpart: the exporter's Service is a ClusterIP. Create another Service for other types")},
		{"dcgmExporter.hostPID", none("has no counterpart: the exporter does not see the host's processes")},
		{"dcgmExporter.hpcJobMapping", none("has no counterpart: job mapping files on the host are not supported")},
		{"dcgmExporter.enablePodLabels", met(false, pods)}, {"dcgmExporter.enablePodUID", met(false, pods)}, {"dcgmExporter.podLabelAllowlistRegex", none(pods)},
	}
	rules = append(rules, componentRules("dcgm", func(c *conversion) *v1alpha1.Component { return &c.policy.DCGM })...)
	return append(rules, componentRules("dcgmExporter", exporter)...)
}

const (
	monitor     = "has no counterpart: the ServiceMonitor cannot be customized. Leave serviceMonitor disabled and create your own"
	metricsList = "has no counterpart: create a ConfigMap with the key dcgm-metrics.csv and name it in spec.dcgmExporter.config"
)

func scrapeInterval(c *conversion, value any) string {
	text, _ := value.(string)
	interval, err := time.ParseDuration(text)
	if err != nil || interval <= 0 {
		return fmt.Sprintf("has the value %q, which is not a duration in hours, minutes and seconds", text)
	}
	c.policy.DCGMExporter.Interval = &metav1.Duration{Duration: interval}
	return ""
}

// toolkitEnv takes over where containerd has its configuration; the rest is about NVIDIA's program.
func toolkitEnv(c *conversion, value any) string {
	list, _ := value.([]any)
	var others []string
	for _, entry := range list {
		variable, _ := entry.(map[string]any)
		path, _ := variable["value"].(string)
		if variable["name"] == "CONTAINERD_CONFIG" && strings.HasPrefix(path, "/") {
			c.policy.Toolkit.ContainerdConfig = path
			continue
		}
		others = append(others, fmt.Sprint(variable["name"]))
	}
	if len(others) == 0 {
		return ""
	}
	return "has variables (" + strings.Join(others, ", ") + ") of NVIDIA's toolkit, which Tessera's hook replaces. Only CONTAINERD_CONFIG has a counterpart"
}

// sandbox chooses the nodes of virtual machines by the label that they have.
func (c *conversion) sandbox(value any) string {
	if value != true {
		return ""
	}
	c.policy.SandboxWorkloads = v1alpha1.SandboxWorkloadsSpec{Enabled: true, NodeSelector: c.workload(workloadPassthrough)}
	return ""
}

// workload selects the nodes of a workload: those with its label, and those without any where it is the default.
func (c *conversion) workload(workload string) *metav1.LabelSelector {
	if c.textAt("sandboxWorkloads.defaultWorkload") != workload {
		return &metav1.LabelSelector{MatchLabels: map[string]string{workloadLabel: workload}}
	}
	var others []string
	for _, other := range []string{workloadContainer, workloadPassthrough, workloadVGPU} {
		if other != workload {
			others = append(others, other)
		}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: workloadLabel, Operator: metav1.LabelSelectorOpNotIn, Values: others}}}
}

// place sets fields that our validation rules require and that the source has elsewhere.
func (c *conversion) place() {
	manager := &c.policy.VGPUManager
	if !manager.Chosen() {
		return
	}
	if c.at("sandboxWorkloads.enabled") != true {
		c.refuse("vgpuManager.enabled", true, "has no effect without sandboxWorkloads and is omitted. Set spec.vgpuManager with image and nodeSelector")
		*manager = v1alpha1.VGPUManagerSpec{}
		return
	}
	manager.NodeSelector = c.workload(workloadVGPU)
	if c.root != "" && c.at("vgpuDeviceManager.enabled") == nil {
		c.policy.VGPUDeviceManager.Enabled = new(false) // the default of the kind, and not of the chart
	}
	if manager.Image == "" {
		c.refuse("vgpuManager.enabled", true, "requires an image with a tag: NVIDIA publishes none. Set spec.vgpuManager.enabled and image")
		manager.Enabled = nil
	}
}
