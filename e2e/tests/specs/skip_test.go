package specs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

func TestExceptions(t *testing.T) {
	for _, version := range binaries.KubernetesVersions() {
		for _, e := range exceptions(version) {
			if e.reason == "" || e.text == "" || e.suite != Suite && e.suite != Installation {
				t.Errorf("Kubernetes %s: %+v is incomplete", version, e)
			}
		}
	}
	list := exceptions(binaries.Kubernetes136)
	if e, found := find(list, Suite, "tessera-scheduler places pods"); !found || e.reason != ownScheduler {
		t.Errorf("found %t, %+v", found, e)
	}
	if e, found := find(list, Installation, "tessera-scheduler places pods"); found {
		t.Errorf("an exception of another suite applies: %+v", e)
	}
}

func TestUnmatchedExceptions(t *testing.T) {
	list := []exception{{suite: Suite, text: "A pod "}, {suite: Suite, text: "A node "}, {suite: Installation, text: "A chart "}}
	report := ginkgo.Report{SpecReports: types.SpecReports{{LeafNodeType: types.NodeTypeIt, LeafNodeText: "runs", ContainerHierarchyTexts: []string{"A pod"}}}}
	if diff := cmp.Diff([]string{"A node "}, unmatched(list, Suite, report)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
