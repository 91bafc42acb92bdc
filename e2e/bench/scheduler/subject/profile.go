package subject

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
	pluginconfig "github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
)

// profiles returns the only profile of the variant: the default one, for Ours with our plugin in the place
// of DynamicResources and first among those that run after Filter.
func profiles(s Spec) ([]config.KubeSchedulerProfile, error) {
	name := fleet.SchedulerName
	profile := configv1.KubeSchedulerProfile{SchedulerName: &name}
	if s.Variant == Ours {
		ours := configv1.Plugin{Name: plugin.Name}
		first := configv1.PluginSet{
			Enabled:  []configv1.Plugin{ours, {Name: names.DefaultPreemption}},
			Disabled: []configv1.Plugin{{Name: "*"}},
		}
		profile.Plugins = &configv1.Plugins{
			MultiPoint: configv1.PluginSet{Enabled: []configv1.Plugin{ours}, Disabled: []configv1.Plugin{{Name: names.DynamicResources}}},
			PostFilter: first,
		}
		if s.Additional {
			args := fmt.Appendf(nil, `{"mode": %q}`, pluginconfig.Additional)
			profile.PluginConfig = []configv1.PluginConfig{{Name: plugin.Name, Args: runtime.RawExtension{Raw: args}}}
		}
	}
	written := configv1.KubeSchedulerConfiguration{Profiles: []configv1.KubeSchedulerProfile{profile}}
	scheme.Scheme.Default(&written)
	read := config.KubeSchedulerConfiguration{}
	if err := scheme.Scheme.Convert(&written, &read, nil); err != nil {
		return nil, fmt.Errorf("make the profile of %s: %w", s.Variant, err)
	}
	return read.Profiles, nil
}
