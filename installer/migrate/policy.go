package migrate

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// The label by which nodes of the GPU Operator say what they are for, and its values.
const (
	workloadLabel       = "nvidia.com/gpu.workload.config"
	workloadContainer   = "container"
	workloadPassthrough = "vm-passthrough"
	workloadVGPU        = "vm-vgpu"
)

// policyRules are those of a ClusterPolicy; values of the chart have the same fields.
func policyRules() []rule {
	rules := []rule{
		{"operator.defaultRuntime", none("has no counterpart: devices come by CDI, whatever the runtime's default is")},
		{"operator.runtimeClass", into(func(c *conversion) *string { return &c.policy.Toolkit.RuntimeClass })},
		{"operator.initContainer", none("has no counterpart: init containers run Tessera's node image")},
		{"operator.labels", none(installerPod)}, {"operator.annotations", none(installerPod)}, {"operator.metrics", none(installerPod)},
		{"operator.use_ocp_driver_toolkit", met(false, "has no counterpart: OpenShift's driver toolkit is not used. Take precompiled drivers, or keep the hosts' own")},
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
		{"toolkit.installDir", none("has no counterpart: nothing of the toolkit is installed on hosts but one static hook")},
		{"validator", none("is about the validation of NVIDIA's. Tessera's goes through claims; spec.validator has enabled, mig, timeout, env, args and resources")},
		{"cdi.enabled", met(true, "has no counterpart: CDI is the only way by which devices come into containers")},
		{"cdi.default", none("has no counterpart, and no effect in the GPU Operator either")},
		{"cdi.nriPluginEnabled", met(false, "has no counterpart: devices come by DRA and CDI, no NRI plugin is needed")},
		{"psp", none("has no counterpart, and no effect in the GPU Operator either")},
		{"psa.enabled", none("has no counterpart: label the installer's namespace pod-security.kubernetes.io/enforce: privileged yourself where Pod Security is enforced")},
		{"gfd.enabled", into(func(c *conversion) **bool { return &c.policy.FeatureLabels.Enabled })},
		{"nodeStatusExporter", none("has no counterpart: the installer serves the state of every node, and GPUNodes have it as conditions")},
		{"mig.strategy", none("has no counterpart: each MIG profile has a DeviceClass and the extended resource nvidia.com/mig-<profile>, slices are carved when a claim " +
			"asks. Under the strategy single pods asked for slices as nvidia.com/gpu: they must ask for the profile now")},
		{"migManager.config", none("has no counterpart as such: give its file with --mig-config, and each layout becomes a pool of spec.nodeAgent.pools")},
		{"migManager.gpuClientsConfig", none("has no counterpart: the agent drains claims, and stops nothing on hosts")},
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
		{"vfioManager", none("has no counterpart of its own: the node agent binds GPUs to vfio-pci where spec.sandboxWorkloads says so")},
		{"sandboxDevicePlugin", none(sandboxPlugin)}, {"kataSandboxDevicePlugin", none(sandboxPlugin)},
		{"vgpuDeviceManager", none("has no counterpart: vGPU devices are made by the image of spec.vgpuManager, or by hand")},
		{"kataManager", none("has no counterpart, and no effect in the GPU Operator either")},
		{"ccManager", none("has no counterpart: confidential computing modes are not managed. Set them on the hosts")},
		{"sandboxWorkloads.enabled", func(c *conversion, value any) string { return c.sandbox(value) }},
		{"sandboxWorkloads.defaultWorkload", func(*conversion, any) string { return "" }}, // read by sandbox
		{"sandboxWorkloads.mode", none("has no counterpart: KubeVirt and Kata find their devices in the same claims of the shape vfio")},
		{"vgpuManager.driverManager", none("has no counterpart: modules are unloaded by Tessera's own node image")},
		{"vgpuManager.kernelModuleConfig", none("has no counterpart: put parameters of modules into the image's /etc/modprobe.d")},
	}
	return append(rules, componentRules("vgpuManager", func(c *conversion) *v1alpha1.Component { return &c.policy.VGPUManager.Component })...)
}

const (
	installerPod  = "is about the operator's own pod and metrics. The installer's are set by the values of Tessera's chart"
	sandboxPlugin = "has no counterpart of its own: the node agent publishes GPUs of the shape vfio, for KubeVirt and Kata alike"
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
		{"daemonsets.updateStrategy", none("has no counterpart: drivers change as spec.upgrade says, everything else is rolled out by its DaemonSet")},
		{"daemonsets.rollingUpdate", none("has no counterpart: spec.upgrade.maxUnavailable is for drivers, everything else takes no GPU away")},
		{"daemonsets.podSecurityContext", none("has no counterpart: each operand runs with the least it needs")},
	}
}

// own takes over labels or annotations but those that are the installer's own.
func (c *conversion) own(path string, value any, target *map[string]string) string {
	object, _ := value.(map[string]any)
	for _, key := range keys(object) {
		text := fmt.Sprint(object[key])
		if strings.HasPrefix(key, "tessera.dev/") || strings.HasPrefix(key, "app.kubernetes.io/") || key == "app" || strings.HasPrefix(key, "helm.sh/") {
			c.refuse(path+"."+key, text, "is set by the installer itself, or belongs to the other chart")
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
		{"devicePlugin.enabled", met(true, "has no counterpart: the node agent takes the plugin's place. Where it must not run, set spec.nodeAgent.enabled: false")},
		{"devicePlugin.config", none("names a configuration of the device plugin. Time slicing and MPS are shapes here: spec.nodeAgent.config.shares says how many share a GPU, " +
			"for some nodes in spec.nodeAgent.pools; claims choose the class timeshare.tessera.dev or mps.tessera.dev")},
		{"devicePlugin.mps", none("has no counterpart: MPS daemons keep their files where the node agent keeps its own")},
		{"migManager.enabled", none("has no counterpart: the node agent carves slices when claims ask. Which profiles are offered is spec.nodeAgent.config.profiles")},
	}
}

// monitoringRules are those of DCGM and its exporter.
func monitoringRules() []rule {
	exporter := func(c *conversion) *v1alpha1.Component { return &c.policy.DCGMExporter.Component }
	pods := "has no counterpart: the exporter has no right to read pods. The node agent's metrics name the pods and claims of every device"
	rules := []rule{
		{"dcgm.hostPort", none("has no counterpart: the host engine is reached through its Service, no port of the host is opened")},
		{"dcgmExporter.config.name", into(func(c *conversion) *string { return &c.policy.DCGMExporter.Config })},
		{"dcgmExporter.config.create", none(metricsList)}, {"dcgmExporter.config.data", none(metricsList)},
		{"dcgmExporter.serviceMonitor.enabled", into(func(c *conversion) *bool { return &c.policy.DCGMExporter.ServiceMonitor })},
		{"dcgmExporter.serviceMonitor.interval", scrapeInterval},
		{"dcgmExporter.serviceMonitor.honorLabels", none(monitor)}, {"dcgmExporter.serviceMonitor.additionalLabels", none(monitor)},
		{"dcgmExporter.serviceMonitor.relabelings", none(monitor)}, {"dcgmExporter.serviceMonitor.metricRelabelings", none(monitor)},
		{"dcgmExporter.service", none("has no counterpart: the exporter's Service is a ClusterIP. Make another beside it")},
		{"dcgmExporter.hostPID", none("has no counterpart: the exporter does not see the host's processes")},
		{"dcgmExporter.hpcJobMapping", none("has no counterpart: jobs are not mapped by files of the host")},
		{"dcgmExporter.enablePodLabels", met(false, pods)}, {"dcgmExporter.enablePodUID", met(false, pods)}, {"dcgmExporter.podLabelAllowlistRegex", none(pods)},
	}
	rules = append(rules, componentRules("dcgm", func(c *conversion) *v1alpha1.Component { return &c.policy.DCGM })...)
	return append(rules, componentRules("dcgmExporter", exporter)...)
}

const (
	monitor     = "has no counterpart: the ServiceMonitor has no labels or relabelings of yours. Leave serviceMonitor off and make one yourself"
	metricsList = "has no counterpart: make the ConfigMap with the key dcgm-metrics.csv yourself and name it in spec.dcgmExporter.config"
)

func scrapeInterval(c *conversion, value any) string {
	text, _ := value.(string)
	interval, err := time.ParseDuration(text)
	if err != nil || interval <= 0 {
		return fmt.Sprintf("has the value %q, which is no duration in hours, minutes and seconds", text)
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
	return "has variables (" + strings.Join(others, ", ") + ") of NVIDIA's toolkit, in whose place Tessera's hook runs. Only CONTAINERD_CONFIG has a counterpart"
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

// place sets what our rules between fields ask for and the source says elsewhere.
func (c *conversion) place() {
	manager := &c.policy.VGPUManager
	if !manager.Chosen() {
		return
	}
	if c.at("sandboxWorkloads.enabled") != true {
		c.refuse("vgpuManager.enabled", true, "has no effect without sandboxWorkloads there, and is left out. Set spec.vgpuManager with image and nodeSelector")
		*manager = v1alpha1.VGPUManagerSpec{}
		return
	}
	manager.NodeSelector = c.workload(workloadVGPU)
	if manager.Image == "" {
		c.refuse("vgpuManager.enabled", true, "needs an image with its tag: NVIDIA publishes none. Set spec.vgpuManager.enabled and image")
		manager.Enabled = nil
	}
}
