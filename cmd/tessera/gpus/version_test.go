package gpus

import (
	"testing"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

func TestDriverVersion(t *testing.T) {
	reported := func(version string) *v1alpha1.GPUNode {
		return &v1alpha1.GPUNode{Status: v1alpha1.GPUNodeStatus{Agent: &v1alpha1.AgentStatus{DriverVersion: version}}}
	}
	tests := map[string]struct {
		published string
		node      *v1alpha1.GPUNode
		want      string
	}{
		"no report":          {"570.124.6", nil, "570.124.06"},
		"two digits":         {"580.105.8", &v1alpha1.GPUNode{}, "580.105.08"},
		"reported":           {"570.26.0", reported("570.26"), "570.26"},
		"zeros":              {"418.87.0", reported("418.87.00"), "418.87.00"},
		"older report":       {"580.65.6", reported("570.124.06"), "580.65.06"},
		"no driver reported": {"580.65.6", reported(""), "580.65.06"},
		"not published":      {"", nil, ""},
		"another form":       {"580.65.6-rc1", nil, "580.65.6-rc1"},
	}
	for name, test := range tests {
		if got := driverVersion(test.published, test.node); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
