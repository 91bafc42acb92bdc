package cluster

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An installation in a lab differs from the defaults of the chart in image references and in the roots of the fake hardware only.
func TestLabValues(t *testing.T) {
	got := paths("", labValues())
	slices.Sort(got)
	want := []string{
		"clusterPolicy.hostPaths.dev", "clusterPolicy.hostPaths.proc", "clusterPolicy.hostPaths.sys",
		"images.dcgm.repository", "images.dcgm.tag", "images.dcgmExporter.repository", "images.dcgmExporter.tag",
		"images.driver.repository", "images.driver.version", "images.gdrcopy.repository", "images.gdrcopy.tag",
		"images.gds.repository", "images.gds.tag",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the values that differ from the chart's (-want +got):\n%s", diff)
	}
}

// paths returns the paths of all values that are not themselves Values.
func paths(prefix string, values Values) []string {
	var list []string
	for key, value := range values {
		if below, is := value.(Values); is {
			list = append(list, paths(prefix+key+".", below)...)
		} else {
			list = append(list, prefix+key)
		}
	}
	return list
}
