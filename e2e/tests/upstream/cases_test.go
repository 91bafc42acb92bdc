package upstream

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	kubeschedulerconfigv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

const (
	casesFile  = "performance-config.yaml"
	configFile = "tessera-scheduler-config.yaml"
	inTree     = "DynamicResources"
)

// inapplicable names workloads that our plugin cannot run, as case/workload, with the reason.
var inapplicable = map[string]string{}

// suite is one folder of cases, in our copy.
type suite struct {
	topic     string // upstream's name for the folder, in metrics
	dir       string
	workloads []workload
}

type workload struct {
	name   string // case/workload
	labels []string
}

// copySuites copies upstream's DRA cases into a folder and gives every case a scheduler configuration
// that rewrite has seen. The files name each other relative to the folder they are in.
func copySuites(ctx context.Context, into string, rewrite func(*kubeschedulerconfigv1.KubeSchedulerConfiguration)) ([]suite, error) {
	source, err := upstreamCases(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(into, os.DirFS(source)); err != nil {
		return nil, fmt.Errorf("copy the cases: %w", err)
	}
	var suites []suite
	err = filepath.WalkDir(into, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != casesFile {
			return err
		}
		made, err := newSuite(into, filepath.Dir(path), rewrite)
		if err != nil {
			return fmt.Errorf("prepare %s: %w", path, err)
		}
		suites = append(suites, made)
		return nil
	})
	return suites, err
}

// upstreamCases finds the cases in the module cache.
func upstreamCases(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return "", fmt.Errorf("find kubernetes in the module cache: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "test", "integration", "scheduler_perf", "dra"), nil
}

// newSuite rewrites the cases of one folder. Cases stay maps, so that unknown fields are kept.
func newSuite(root, dir string, rewrite func(*kubeschedulerconfigv1.KubeSchedulerConfiguration)) (suite, error) {
	path := filepath.Join(dir, casesFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return suite{}, err
	}
	var cases []map[string]any
	if err := yaml.Unmarshal(text, &cases); err != nil {
		return suite{}, err
	}
	relative, err := filepath.Rel(root, dir)
	if err != nil {
		return suite{}, err
	}
	made := suite{topic: topic(relative), dir: dir}
	for _, c := range cases {
		base, _ := c["schedulerConfigPath"].(string)
		name, err := writeConfig(dir, base, rewrite)
		if err != nil {
			return suite{}, err
		}
		c["schedulerConfigPath"] = name
		c["workloads"] = applicable(c)
	}
	if text, err = yaml.Marshal(cases); err != nil {
		return suite{}, err
	}
	if made.workloads, err = workloads(text); err != nil {
		return suite{}, err
	}
	return made, os.WriteFile(path, text, 0o644)
}

// topic is how upstream names the folder's results.
func topic(relative string) string {
	if relative == "." {
		return "dra"
	}
	return "dra_" + strings.ReplaceAll(filepath.ToSlash(relative), "/", "_")
}

// writeConfig writes the configuration of a case that has base, which may be empty, and returns its file's name.
func writeConfig(dir, base string, rewrite func(*kubeschedulerconfigv1.KubeSchedulerConfiguration)) (string, error) {
	text := []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: default-scheduler}]\n")
	if base != "" {
		var err error
		if text, err = os.ReadFile(filepath.Join(dir, base)); err != nil {
			return "", err
		}
	}
	var config kubeschedulerconfigv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return "", fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	rewrite(&config)
	text, err := yaml.Marshal(config)
	if err != nil {
		return "", err
	}
	name := strings.TrimSuffix(configFile, ".yaml") + "-" + filepath.Base("for-"+base) + ".yaml"
	return name, os.WriteFile(filepath.Join(dir, name), text, 0o644)
}

// replaceInTree puts our plugin into the in-tree plugin's place in every profile, before the default
// preemption where the order counts.
func replaceInTree(config *kubeschedulerconfigv1.KubeSchedulerConfiguration) {
	weight := int32(2) // the in-tree plugin's
	ours := kubeschedulerconfigv1.Plugin{Name: plugin.Name, Weight: &weight}
	for i := range config.Profiles {
		profile := &config.Profiles[i]
		if profile.Plugins == nil {
			profile.Plugins = &kubeschedulerconfigv1.Plugins{}
		}
		plugins := profile.Plugins
		plugins.MultiPoint.Disabled = append(plugins.MultiPoint.Disabled, kubeschedulerconfigv1.Plugin{Name: inTree})
		plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, ours)
		for _, first := range []*kubeschedulerconfigv1.PluginSet{&plugins.PostFilter, &plugins.PodGroupPostFilter} {
			first.Enabled = slices.Insert(first.Enabled, 0, kubeschedulerconfigv1.Plugin{Name: plugin.Name})
		}
	}
}

// applicable returns the workloads of a case without those that cannot run.
func applicable(c map[string]any) []any {
	all, _ := c["workloads"].([]any)
	return slices.DeleteFunc(all, func(w any) bool {
		fields, _ := w.(map[string]any)
		_, no := inapplicable[fmt.Sprintf("%v/%v", c["name"], fields["name"])]
		return no
	})
}

// workloads lists what a file of cases holds.
func workloads(text []byte) ([]workload, error) {
	var cases []struct {
		Name      string
		Labels    []string
		Workloads []struct {
			Name   string
			Labels []string
		}
	}
	if err := yaml.Unmarshal(text, &cases); err != nil {
		return nil, err
	}
	var all []workload
	for _, c := range cases {
		for _, w := range c.Workloads {
			all = append(all, workload{name: c.Name + "/" + w.Name, labels: slices.Concat(c.Labels, w.Labels)})
		}
	}
	return all, nil
}
