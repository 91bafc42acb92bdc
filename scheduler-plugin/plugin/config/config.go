// Package config is the configuration of the plugin TesseraDynamicResources: its args in pluginConfig of the scheduler's
// configuration file.
package config

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TesseraDynamicResourcesArgs configures the plugin.
type TesseraDynamicResourcesArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Drivers are the driver names under which the node agents publish. Default: gpu.tessera.dev.
	Drivers []string `json:"drivers,omitempty"`
	// Weights describe the expected demand.
	Weights Weights `json:"weights,omitempty"`
	// Candidates is the number of nodes that an attempt considers first. If none of them fits, the next attempt considers
	// all nodes. Default: 64.
	Candidates int `json:"candidates,omitempty"`
	// Mode is how this scheduler shares the cluster with others. Default: Replace.
	Mode Mode `json:"mode,omitempty"`
	// Preemption is whether pods of lower priority are evicted for devices. Default: Disabled.
	Preemption Switch `json:"preemption,omitempty"`
	// FilterTimeout bounds the in-tree allocator's search on one node; zero is no bound. Default: 10s.
	FilterTimeout *metav1.Duration `json:"filterTimeout,omitempty"`
	// BindingTimeout bounds the wait for devices' binding conditions. Default: 10m.
	BindingTimeout *metav1.Duration `json:"bindingTimeout,omitempty"`
}

// Weights describe the expected demand.
type Weights struct {
	// Profiles are the shares of the demands by the names of MIG profiles; one that is not named is not
	// expected (fit.Weights). Default: nothing is known of the demand.
	Profiles map[string]float64 `json:"profiles,omitempty"`
}

// Mode is how the scheduler shares the cluster with others.
type Mode string

const (
	// Replace is for the cluster's only scheduler.
	Replace Mode = "Replace"
	// Additional is for a scheduler in addition to the stock one, which a taint on every device keeps away. The
	// plugin does not see that taint.
	Additional Mode = "Additional"
)

// Switch turns a feature on or off.
type Switch string

// Enabled and Disabled are the values of a Switch.
const (
	Enabled  Switch = "Enabled"
	Disabled Switch = "Disabled"
)
