package main

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// shipped loads a configuration of deployments/ as kube-scheduler does.
func shipped(t *testing.T, way string) *config.KubeSchedulerConfiguration {
	t.Helper()
	logger, _ := ktesting.NewTestContext(t)
	loaded, err := options.LoadConfigFromFile(logger, filepath.Join("..", "..", "deployments", "scheduler", way, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validation.ValidateKubeSchedulerConfiguration(loaded); err != nil {
		t.Fatal(err)
	}
	return loaded
}

func TestShippedConfigurations(t *testing.T) {
	tests := map[string]struct {
		profiles []string
		lease    string // namespace and name
	}{
		// The lease is that of the stock scheduler, so that one of both schedules.
		"replace":    {[]string{"default-scheduler", "tessera-scheduler"}, "kube-system/kube-scheduler"},
		"additional": {[]string{"tessera-scheduler"}, "tessera-system/tessera-scheduler"},
	}
	for way, test := range tests {
		t.Run(way, func(t *testing.T) {
			loaded := shipped(t, way)
			var profiles []string
			for _, profile := range loaded.Profiles {
				profiles = append(profiles, profile.SchedulerName)
			}
			if diff := cmp.Diff(test.profiles, profiles); diff != "" {
				t.Errorf("profiles (-want +got):\n%s", diff)
			}
			election := loaded.LeaderElection
			if got := election.ResourceNamespace + "/" + election.ResourceName; !election.LeaderElect || got != test.lease {
				t.Errorf("leader election %t by %s, want it by %s", election.LeaderElect, got, test.lease)
			}
			for i := range loaded.Profiles {
				checkPlugins(t, &loaded.Profiles[i])
			}
		})
	}
}

// checkPlugins creates the profile's framework: our plugin must replace the in-tree plugin and be called
// before preemption.
func checkPlugins(t *testing.T, profile *config.KubeSchedulerProfile) {
	t.Helper()
	got := pluginsOf(t, profile)
	for point, list := range map[string]config.PluginSet{
		"preFilter": got.PreFilter, "filter": got.Filter, "score": got.Score, "reserve": got.Reserve, "preBind": got.PreBind,
	} {
		if !has(list, plugin.Name) || has(list, names.DynamicResources) {
			t.Errorf("%s, %s: %v, want %s and not %s", profile.SchedulerName, point, list.Enabled, plugin.Name, names.DynamicResources)
		}
	}
	for point, list := range map[string]config.PluginSet{"postFilter": got.PostFilter, "podGroupPostFilter": got.PodGroupPostFilter} {
		if len(list.Enabled) == 0 || list.Enabled[0].Name != plugin.Name {
			t.Errorf("%s, %s: %v, want %s first", profile.SchedulerName, point, list.Enabled, plugin.Name)
		}
	}
	if !has(got.PostFilter, names.DefaultPreemption) {
		t.Errorf("%s: preemption is gone", profile.SchedulerName)
	}
}

func has(list config.PluginSet, name string) bool {
	return slices.ContainsFunc(list.Enabled, func(p config.Plugin) bool { return p.Name == name })
}

// pluginsOf returns what a profile runs at each extension point, in order, with a placeholder for our plugin.
func pluginsOf(t *testing.T, profile *config.KubeSchedulerProfile) *config.Plugins {
	t.Helper()
	metrics.Register()
	registry := plugins.NewInTreeRegistry()
	err := registry.Register(plugin.Name, func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return standIn{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	framework, err := frameworkruntime.NewFramework(t.Context(), registry, profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithSnapshotSharedLister(cache.NewEmptySnapshot()),
		frameworkruntime.WithEventRecorder(&events.FakeRecorder{}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return framework.ListPlugins()
}

// standIn has the extension points that matter here and does nothing.
type standIn struct {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
	fwk.PostFilterPlugin
	fwk.PodGroupPostFilterPlugin
	fwk.ScorePlugin
	fwk.ReservePlugin
	fwk.PreBindPlugin
}

func (standIn) Name() string { return plugin.Name }
