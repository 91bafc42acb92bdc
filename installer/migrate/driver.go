package migrate

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// driverRules are those of the driver at a path of a policy, or of an NVIDIADriver (path is empty).
func driverRules(path string) []rule {
	at := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	image := func(c *conversion, _ any) string { return c.driverImage(path) }
	driver := func(c *conversion) *v1alpha1.Component { return &c.driver.Component }
	rules := []rule{
		{at("repository"), image}, {at("image"), image}, {at("version"), image},
		{at("usePrecompiled"), into(func(c *conversion) *bool { return &c.driver.UsePrecompiled })},
		{at("kernelModuleType"), choices(func(c *conversion) *v1alpha1.KernelModuleType { return &c.driver.KernelModuleType }, map[string]v1alpha1.KernelModuleType{
			"auto": v1alpha1.ModulesAuto, "open": v1alpha1.ModulesOpen, "proprietary": v1alpha1.ModulesProprietary,
		})},
		{at("startupProbe.initialDelaySeconds"), startup(at("startupProbe"))},
		{at("startupProbe.periodSeconds"), startup(at("startupProbe"))},
		{at("startupProbe.failureThreshold"), startup(at("startupProbe"))},
		{at("startupProbe.timeoutSeconds"), none(fixedProbe)}, {at("startupProbe.successThreshold"), none(fixedProbe)},
		{at("livenessProbe"), none(fixedProbe)},
		{at("readinessProbe"), none(fixedProbe)},
		{at("rdma.enabled"), into(func(c *conversion) **bool { return &c.driver.RDMA.Enabled })},
		{at("rdma.useHostMofed"), into(func(c *conversion) *bool { return &c.driver.RDMA.UseHostMOFED })},
		{at("manager"), none("has no counterpart: Tessera's node image runs the preflight and unloads modules")},
		{at("repoConfig.configMapName"), name(func(c *conversion) *string { return &c.driver.RepoConfig })},
		{at("repoConfig.name"), name(func(c *conversion) *string { return &c.driver.RepoConfig })},
		{at("certConfig.name"), name(func(c *conversion) *string { return &c.driver.CertConfig })},
		{at("licensingConfig.secretName"), name(func(c *conversion) *string { return &c.driver.LicensingSecret })},
		{at("licensingConfig.configMapName"), none(licence)}, {at("licensingConfig.name"), none(licence)},
		{at("licensingConfig.nlsEnabled"), none("has no counterpart: NLS is used if the licensing Secret has the key client_configuration_token.tok")},
		{at("virtualTopology"), none(topology)}, {at("virtualTopologyConfig"), none(topology)},
		{at("kernelModuleConfig.name"), name(func(c *conversion) *string { return &c.driver.KernelModuleConfig })},
		{at("secretEnv"), name(func(c *conversion) *string { return &c.driver.SecretEnv })},
	}
	rules = append(rules, upgradeRules(at("upgradePolicy"))...)
	return append(rules, named(componentRules("x", driver), at)...)
}

// named returns the rules of a component with paths below another prefix.
func named(rules []rule, at func(string) string) []rule {
	for i := range rules {
		rules[i].path = at(rules[i].path[len("x."):])
	}
	return rules
}

const (
	licence  = "has no counterpart: a license is kept in a Secret, not in a ConfigMap. Create a Secret and name it in spec.driver.licensingSecret"
	topology = "has no counterpart: topologyd is not configured. If vGPU guests need it, add its file to a custom image"
)

// driverObjectRules are those of an NVIDIADriver.
func driverObjectRules() []rule {
	rules := []rule{
		{"default", into(func(c *conversion) *bool { return &c.object.Default })},
		{"driverType", func(_ *conversion, value any) string {
			if value == "gpu" || value == "vgpu" {
				return "" // a guest's driver is a driver with another image
			}
			return fmt.Sprintf("has the value %v, which has no counterpart", value)
		}},
		{"nodeSelector", func(c *conversion, value any) string {
			if selector, ok := value.(map[string]any); ok && len(selector) == 0 {
				return ""
			}
			c.object.NodeSelector = &metav1.LabelSelector{}
			return into(func(c *conversion) *map[string]string { return &c.object.NodeSelector.MatchLabels })(c, value)
		}},
		{"nodeAffinity", none("has no counterpart, and no effect in the GPU Operator either. Select nodes with spec.nodeSelector, which supports matchExpressions")},
		{"tolerations", wrapped("tolerations", func(c *conversion) *v1alpha1.Component { return &c.driver.Component })},
		{"labels", none("has no counterpart in NVIDIADrivers: spec.daemonSets.labels of the ClusterPolicy apply to all operands")},
		{"annotations", none("has no counterpart in NVIDIADrivers: spec.daemonSets.annotations of the ClusterPolicy apply to all operands")},
		{"priorityClassName", none("has no counterpart in NVIDIADrivers: spec.daemonSets.priorityClassName of the ClusterPolicy applies to all operands")},
		{"podSecurityContext", none("has no counterpart: the driver container is privileged, all other operands are not")},
	}
	rules = append(rules, componentRules("gds", gds)...)
	rules = append(rules, componentRules("gdrcopy", gdrcopy)...)
	return append(rules, driverRules("")...)
}

func gds(c *conversion) *v1alpha1.Component     { return &c.driver.GDS }
func gdrcopy(c *conversion) *v1alpha1.Component { return &c.driver.GDRCopy }

// startup makes one time of a startup probe at the path: how long it may go on failing.
func startup(path string) convert {
	return func(c *conversion, _ any) string {
		number := func(name string, otherwise float64) float64 {
			if n, ok := c.at(path + "." + name).(float64); ok {
				return n
			}
			return otherwise
		}
		// What is absent is what the GPU Operator sets.
		total := number("initialDelaySeconds", 60) + number("periodSeconds", 10)*number("failureThreshold", 120)
		if total <= 0 {
			return "is a timeout of zero"
		}
		c.driver.StartupTimeout = &metav1.Duration{Duration: time.Duration(total) * time.Second}
		return ""
	}
}
