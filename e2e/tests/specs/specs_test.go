package specs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

func TestLongestAreTheSlowestThatRan(t *testing.T) {
	report := ginkgo.Report{SpecReports: types.SpecReports{
		{LeafNodeType: types.NodeTypeBeforeSuite, RunTime: 5 * time.Second},
		{LeafNodeType: types.NodeTypeIt, LeafNodeText: "skipped"},
		{LeafNodeType: types.NodeTypeIt, LeafNodeText: "slow", ContainerHierarchyTexts: []string{"A pod"}, RunTime: time.Minute},
	}}
	for range 2 * slowest {
		report.SpecReports = append(report.SpecReports, ginkgo.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: "fast", RunTime: time.Second})
	}
	var got []string
	for _, spec := range longest(ran(report)) {
		got = append(got, name(spec))
	}
	want := []string{"A pod slow", "BeforeSuite", "fast", "fast", "fast", "fast", "fast", "fast", "fast", "fast"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got, want := len(ran(report)), 2*slowest+2; got != want {
		t.Errorf("%d nodes ran, want %d", got, want)
	}
}
