package config_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
)

func defaults() *config.TesseraDynamicResourcesArgs {
	return &config.TesseraDynamicResourcesArgs{
		Drivers: []string{"gpu.tessera.dev"}, Candidates: 64, Mode: config.Replace, Preemption: config.Disabled,
		FilterTimeout: &metav1.Duration{Duration: 10 * time.Second}, BindingTimeout: &metav1.Duration{Duration: 10 * time.Minute},
	}
}

func TestLoad(t *testing.T) {
	changed := defaults()
	changed.TypeMeta = metav1.TypeMeta{APIVersion: "tessera.dev/v1alpha1", Kind: "TesseraDynamicResourcesArgs"}
	changed.Drivers, changed.Candidates, changed.Mode, changed.Preemption = []string{"gpu.nvidia.com"}, 8, config.Additional, config.Enabled
	changed.Weights.Profiles = map[string]float64{"1g.10gb": 0.5}
	changed.FilterTimeout.Duration = 0
	tests := map[string]struct {
		object runtime.Object
		want   *config.TesseraDynamicResourcesArgs
	}{
		"nothing":    {nil, defaults()},
		"empty":      {&runtime.Unknown{}, defaults()},
		"everything": {&runtime.Unknown{ContentType: runtime.ContentTypeYAML, Raw: []byte("apiVersion: tessera.dev/v1alpha1\nkind: TesseraDynamicResourcesArgs\ndrivers: [gpu.nvidia.com]\nweights: {profiles: {1g.10gb: 0.5}}\ncandidates: 8\nmode: Additional\npreemption: Enabled\nfilterTimeout: 0s")}, changed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := config.Load(test.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	tests := map[string]string{
		"an unknown key":            `{"candidate": 3}`,
		"a key twice":               `{"candidates": 3, "candidates": 4}`,
		"a name without letters":    `{"drivers": [""]}`,
		"a negative weight":         `{"weights": {"profiles": {"1g.10gb": -1}}}`,
		"no candidates":             `{"candidates": -1}`,
		"a mode that is none":       `{"mode": "both"}`,
		"a switch that is none":     `{"preemption": "true"}`,
		"a negative timeout":        `{"filterTimeout": "-1s"}`,
		"a wait that is none":       `{"bindingTimeout": "10ms"}`,
		"what is not of the format": `candidates: [`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := config.Load(&runtime.Unknown{Raw: []byte(text)}); err == nil {
				t.Errorf("%s is taken as %+v", text, got)
			}
		})
	}
}
