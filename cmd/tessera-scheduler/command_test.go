package main

import (
	"bytes"
	"errors"
	"runtime/debug"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
)

func TestRefusesToStart(t *testing.T) {
	with := func(gate featuregate.Feature) featuregate.FeatureGate {
		gates := utilfeature.DefaultFeatureGate.DeepCopy()
		if err := gates.SetFromMap(map[string]bool{string(gate): true}); err != nil {
			t.Fatal(err)
		}
		return gates
	}
	tests := map[string]struct {
		config string
		gates  featuregate.FeatureGate
		want   error
	}{
		"without a configuration":                {"", utilfeature.DefaultFeatureGate, errNoConfig},
		"with the gate that reads foreign state": {"config.yaml", with(features.DRANodeAllocatableResources), errGate},
		"with any other gate, it starts":         {"config.yaml", with(features.GenericWorkload), nil},
		"with the gates as they are, it starts":  {"config.yaml", utilfeature.DefaultFeatureGate, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := check(test.config, test.gates); !errors.Is(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestCommandChecksBeforeItRuns(t *testing.T) {
	cmd := command()
	cmd.SetArgs([]string{})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(t.Context()); !errors.Is(err, errNoConfig) {
		t.Errorf("got %v, want %v", err, errNoConfig)
	}
}

func TestVersionNamesBothSchedulers(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "v1.2.3"}, Deps: []*debug.Module{
		{Path: "k8s.io/api", Version: "v0.37.2"}, {Path: "k8s.io/kubernetes", Version: "v1.37.0"},
	}}
	if got, want := version(info, true), "tessera-scheduler v1.2.3 go1.26, kube-scheduler v1.37.0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--version"})
	// The flag is one of the process.
	t.Cleanup(func() {
		if err := cmd.Flag("version").Value.Set("false"); err != nil {
			t.Error(err)
		}
	})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "tessera-scheduler ") {
		t.Errorf("--version prints %q, %v", out.String(), err)
	}
}
