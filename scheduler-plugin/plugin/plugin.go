package plugin

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// Name is the plugin's name in profiles.
const Name = "TesseraDynamicResources"

// Plugin takes the place of the in-tree plugin DynamicResources in a profile. Its methods are called by
// the framework, under the framework's rules for concurrency.
type Plugin struct {
	*dynamicresources.DynamicResources
}

// New returns the plugin of one profile. It is called once per profile.
func New(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	made, err := dynamicresources.New(ctx, &config.DynamicResourcesArgs{}, handle, features)
	if err != nil {
		return nil, fmt.Errorf("make the in-tree plugin: %w", err)
	}
	inTree, ok := made.(*dynamicresources.DynamicResources)
	if !ok {
		return nil, fmt.Errorf("make the in-tree plugin: got a %T", made)
	}
	return &Plugin{inTree}, nil
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return Name }
