// Package specs runs the ginkgo suites that use a lab.
package specs

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

// AtMost limits a spec that waits for many conditions in sequence. Like harness.Patience it only ends waits that cannot succeed.
const AtMost = ginkgo.NodeTimeout(4 * harness.Patience)

// slowest is the number of nodes whose run times are printed at the end of a suite.
const slowest = 10

// Run runs the specs of the calling package. Their waits end after harness.Patience unless they set another timeout. The report at the end of
// the suite repeats the failures, so that the last lines of a long log contain them, and lists the slowest specs.
func Run(t *testing.T, title string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the lab needs root: it makes network namespaces, mounts and device nodes")
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.EnforceDefaultTimeoutsWhenUsingContexts()
	gomega.SetDefaultEventuallyTimeout(harness.Patience)
	gomega.SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	skipExceptions(title)
	ginkgo.ReportAfterSuite("run times and failures", func(report ginkgo.Report) {
		ginkgo.GinkgoWriter.Printf("%s: %d nodes ran in %.0f s; the slowest:\n", title, len(ran(report)), report.RunTime.Seconds())
		for _, spec := range longest(ran(report)) {
			ginkgo.GinkgoWriter.Printf("%7.1f s  %s\n", spec.RunTime.Seconds(), name(spec))
		}
		for _, spec := range report.SpecReports.WithState(types.SpecStateFailureStates) {
			ginkgo.GinkgoWriter.Printf("%s\n%s\n%s\n", spec.FullText(), spec.FailureLocation(), spec.FailureMessage())
		}
	})
	ginkgo.RunSpecs(t, title)
}

// Folder returns the folder of a lab. Ginkgo can run the specs of a suite in several processes, each of which has its own labs.
func Folder(name string) string {
	return filepath.Join(lab.Base, fmt.Sprintf("%s-%d", name, ginkgo.GinkgoParallelProcess()))
}

// ran returns the specs and suite nodes that were not skipped.
func ran(report ginkgo.Report) types.SpecReports {
	return slices.DeleteFunc(slices.Clone(report.SpecReports), func(spec ginkgo.SpecReport) bool { return spec.RunTime == 0 })
}

// longest returns the slowest of the reports, the slowest first.
func longest(reports types.SpecReports) types.SpecReports {
	byTime := slices.Clone(reports)
	slices.SortStableFunc(byTime, func(a, b ginkgo.SpecReport) int { return cmp.Compare(b.RunTime, a.RunTime) })
	return byTime[:min(slowest, len(byTime))]
}

// name returns a spec's full text, or the type of a suite node.
func name(spec ginkgo.SpecReport) string {
	return cmp.Or(spec.FullText(), spec.LeafNodeType.String())
}
