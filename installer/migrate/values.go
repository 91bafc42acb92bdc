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
				return "has no counterpart: Tessera's chart brings no NFD along. Its own scan finds GPU nodes; where NFD runs, its labels choose them (spec.discovery.source)"
			}
			return ""
		}},
		{"nfd.nodefeaturerules", met(false, "has no counterpart: the scan reads GPUs itself")},
		{"node-feature-discovery", none("is about the bundled NFD. Install NFD by itself where something else needs it")},
		{crd + ".enabled", func(c *conversion, value any) string {
			if value == true && c.at(crd+".deployDefaultCR") == false {
				c.driver.Enabled = new(false)
			}
			return "" // else spec.driver is what the default NVIDIADriver would be
		}},
		{crd + ".deployDefaultCR", func(*conversion, any) string { return "" }}, // read above
		{crd + ".driverType", met("gpu", "has no counterpart in values: a driver of vGPU hosts is spec.vgpuManager")},
		{crd + ".nodeSelector", func(_ *conversion, value any) string {
			if object, ok := value.(map[string]any); ok && len(object) == 0 {
				return ""
			}
			return "chooses the nodes of the default NVIDIADriver. Write an NVIDIADriver with this nodeSelector, and set spec.driver.enabled: false where others get none"
		}},
		{"driver.enabled", func(c *conversion, value any) string {
			if c.at(crd+".enabled") == true && c.at(crd+".deployDefaultCR") == false {
				return "" // the NVIDIADrivers decide
			}
			return into(func(c *conversion) **bool { return &c.driver.Enabled })(c, value)
		}},
		{"clusterPolicy.deployCR", met(true, "has no counterpart: without a ClusterPolicy nothing is installed. Leave it out of Tessera's chart with its own value")},
		{"gpuCluster.deployCR", met(false, "is about the GPU Operator's own DRA stack. Tessera takes its place: remove the GPUCluster before")},
		{"draDriver", none("is about NVIDIA's DRA driver. The node agent takes its place; spec.nodeAgent.config.driverName: gpu.nvidia.com keeps claims written for it")},
		{"extraObjects", none("has no counterpart: apply these objects yourself")},
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

// layouts makes a pool of each layout of a MIG manager's configuration: nodes say by a label which is theirs.
func (r *Result) layouts(content map[string]any) {
	configs, _ := content["mig-configs"].(map[string]any)
	c := conversion{source: "MIG configuration", content: content, result: r}
	if r.Policy == nil {
		c.refuse("mig-configs", configs, "belongs to a ClusterPolicy: give that, too")
		return
	}
	agent := &r.Policy.Spec.NodeAgent
	for _, name := range keys(configs) {
		path := "mig-configs." + name
		if len(agent.Pools) == maxPools {
			c.refuse(path, name, fmt.Sprintf("is one layout too many: there are at most %d pools. Keep those that a node has in its label %s", maxPools, migLabel))
			continue
		}
		l, reason := newLayout(name, configs[name])
		if reason == "" && slices.ContainsFunc(agent.Pools, func(p v1alpha1.NodePool) bool { return p.Name == poolName(name) }) {
			reason = "would be a second pool named " + poolName(name) + ": rename it, here and in the label " + migLabel + " of its nodes"
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
