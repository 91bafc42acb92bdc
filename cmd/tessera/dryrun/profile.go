package dryrun

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
)

// deployment is the name of the scheduler's Deployment in deployments/scheduler, configKey the file in its ConfigMap.
const (
	deployment = "tessera-scheduler"
	configKey  = "config.yaml"
)

// ProfileFor returns the profile that schedules the pods with a schedulerName. file is the scheduler's configuration; empty for that of its Deployment.
func ProfileFor(ctx context.Context, c *cluster.Cluster, file, schedulerName string) (schedulerconfig.KubeSchedulerProfile, error) {
	loaded, err := loadConfiguration(ctx, c, file)
	if err != nil {
		return schedulerconfig.KubeSchedulerProfile{}, err
	}
	return findProfile(loaded, schedulerName)
}

// loadConfiguration returns the scheduler's configuration: that of the file or, without one, that in the ConfigMap of the scheduler's
// Deployment.
func loadConfiguration(ctx context.Context, c *cluster.Cluster, file string) (*schedulerconfig.KubeSchedulerConfiguration, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
		}
		return parseConfiguration(file, text)
	}
	namespace, err := c.SystemNamespace(ctx)
	if err != nil {
		return nil, err
	}
	running, err := c.Client.AppsV1().Deployments(namespace).Get(ctx, deployment, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("find the scheduler's configuration: no Deployment %[1]s in %[2]s. Without %[1]s, the Events of the pod have the reason of the scheduler that "+
			"places it. For what %[1]s would decide, name the scheduler's configuration file with --config", deployment, namespace)
	case err != nil:
		return nil, cluster.ExplainError("find the scheduler's configuration", err)
	}
	for _, volume := range running.Spec.Template.Spec.Volumes {
		if volume.ConfigMap == nil {
			continue
		}
		found, err := c.Client.CoreV1().ConfigMaps(namespace).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, cluster.ExplainError("read the scheduler's configuration", err)
		}
		if text, ok := found.Data[configKey]; ok {
			return parseConfiguration("ConfigMap "+found.Name, []byte(text))
		}
	}
	return nil, fmt.Errorf("find the scheduler's configuration: Deployment %s mounts no ConfigMap with %s: name the scheduler's configuration file with --config", deployment, configKey)
}

func parseConfiguration(from string, text []byte) (*schedulerconfig.KubeSchedulerConfiguration, error) {
	object, _, err := scheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration from %s: %w", from, err)
	}
	c, ok := object.(*schedulerconfig.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("read the scheduler's configuration from %s: unexpected type %T", from, object)
	}
	return c, nil
}

// findProfile returns the profile with the scheduler's name.
func findProfile(c *schedulerconfig.KubeSchedulerConfiguration, name string) (schedulerconfig.KubeSchedulerProfile, error) {
	var names []string
	for _, p := range c.Profiles {
		if p.SchedulerName == name {
			return p, nil
		}
		names = append(names, p.SchedulerName)
	}
	return schedulerconfig.KubeSchedulerProfile{}, fmt.Errorf("the pod's schedulerName is %q, which is not a profile of Tessera's scheduler: %q", name, names)
}

// WithAllCandidates returns the profile with a plugin configuration that omits no node.
func WithAllCandidates(p schedulerconfig.KubeSchedulerProfile) (schedulerconfig.KubeSchedulerProfile, error) {
	var current runtime.Object
	var others []schedulerconfig.PluginConfig
	for _, c := range p.PluginConfig {
		if c.Name == plugin.Name {
			current = c.Args
			continue
		}
		others = append(others, c)
	}
	args, err := config.Load(current)
	if err != nil {
		return p, err
	}
	args.Candidates = math.MaxInt32
	text, err := json.Marshal(args)
	if err != nil {
		return p, fmt.Errorf("write the plugin's arguments: %w", err)
	}
	p.PluginConfig = append(others, schedulerconfig.PluginConfig{
		Name: plugin.Name, Args: &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON},
	})
	return p, nil
}

// withoutPlugin returns the profile, under another name, without Tessera's plugin.
func withoutPlugin(p schedulerconfig.KubeSchedulerProfile) schedulerconfig.KubeSchedulerProfile {
	p = *p.DeepCopy()
	p.SchedulerName += "/others"
	ours := func(e schedulerconfig.Plugin) bool { return e.Name == plugin.Name }
	points := reflect.ValueOf(p.Plugins).Elem()
	for i := range points.NumField() {
		if set, ok := points.Field(i).Addr().Interface().(*schedulerconfig.PluginSet); ok {
			set.Enabled = slices.DeleteFunc(set.Enabled, ours)
		}
	}
	p.PluginConfig = slices.DeleteFunc(p.PluginConfig, func(c schedulerconfig.PluginConfig) bool { return c.Name == plugin.Name })
	return p
}
