package migrate

import (
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// valuesRules are those of values of the chart that are no fields of a ClusterPolicy, or mean another thing there.
func valuesRules() []rule {
	crd := "driver.nvidiaDriverCRD"
	rules := []rule{
		{"platform.openshift", met(false, "has no counterpart: OpenShift is not supported")},
		{"nfd.enabled", func(_ *conversion, value any) string {
			if value == true {
				return "has no counterpart: Tessera's chart does not include NFD. A PCI scan finds GPU nodes; if NFD is installed, its labels select them (spec.discovery.source)"
			}
			return ""
		}},
		{"nfd.nodefeaturerules", met(false, "has no counterpart: the PCI scan finds GPUs without NFD")},
		{"node-feature-discovery", none("configures the bundled NFD. Install NFD separately if other components need it")},
		{crd + ".enabled", func(c *conversion, value any) string {
			if value == true && c.at(crd+".deployDefaultCR") == false {
				c.driver.Enabled = new(false)
			}
			return "" // else spec.driver is what the default NVIDIADriver would be
		}},
		{crd + ".deployDefaultCR", func(*conversion, any) string { return "" }}, // read above
		{crd + ".driverType", met("gpu", "has no counterpart in values: the driver of vGPU hosts is spec.vgpuManager")},
		{crd + ".nodeSelector", func(_ *conversion, value any) string {
			if object, ok := value.(map[string]any); ok && len(object) == 0 {
				return ""
			}
			return "selects the nodes of the default NVIDIADriver. Create an NVIDIADriver with this nodeSelector, and set spec.driver.enabled: false if all other nodes get no driver"
		}},
		{"driver.enabled", func(c *conversion, value any) string {
			if c.at(crd+".enabled") == true && c.at(crd+".deployDefaultCR") == false {
				return "" // the NVIDIADrivers decide
			}
			return into(func(c *conversion) **bool { return &c.driver.Enabled })(c, value)
		}},
		{"clusterPolicy.deployCR", met(true, "has no counterpart: without a ClusterPolicy nothing is installed. Tessera's chart has a value to omit it")},
		{"gpuCluster.deployCR", met(false, "configures the GPU Operator's DRA stack, which Tessera replaces. Remove the GPUCluster first")},
		{"draDriver", none("configures NVIDIA's DRA driver, which the node agent replaces; spec.nodeAgent.config.driverName: gpu.nvidia.com keeps claims written for it")},
		{"extraObjects", none("has no counterpart: apply these objects separately")},
	}
	for _, field := range []string{
		"repository", "image", "version", "imagePullPolicy", "imagePullSecrets", "priorityClassName", "tolerations", "affinity", "nodeSelector", "logging", "resources",
		"upgradeCRD", "cleanupCRD", "env", "podSecurityContext", "securityContext", "hostNetwork", "updateStrategy", "serviceAccount",
	} {
		rules = append(rules, rule{"operator." + field, none(installerPod)})
	}
	return rules
}

// maxPools is how many pools a ClusterPolicy may have.
const maxPools = 32

// layouts creates a pool of each layout in a configuration of the MIG manager. Nodes select their layout with a label.
func (r *Result) layouts(content map[string]any) {
	configs, _ := content["mig-configs"].(map[string]any)
	c := conversion{source: "MIG configuration", content: content, result: r}
	if r.Policy == nil {
		c.refuse("mig-configs", configs, "belongs to a ClusterPolicy: pass the ClusterPolicy, too")
		return
	}
	agent := &r.Policy.Spec.NodeAgent
	for _, name := range keys(configs) {
		path := "mig-configs." + name
		if len(agent.Pools) == maxPools {
			c.refuse(path, name, fmt.Sprintf("exceeds the maximum of %d pools. Keep the layouts that nodes name in their label %s", maxPools, migLabel))
			continue
		}
		l, reason := newLayout(name, configs[name])
		if reason == "" && slices.ContainsFunc(agent.Pools, func(p v1alpha1.NodePool) bool { return p.Name == poolName(name) }) {
			reason = "would be a second pool named " + poolName(name) + ": rename it in the file and in the label " + migLabel + " of its nodes"
		}
		if reason != "" {
			c.refuse(path, name, reason)
			continue
		}
		agent.Pools = append(agent.Pools, l.pool())
		for _, note := range l.notes {
			c.refuse(path, name, note)
		}
	}
}
