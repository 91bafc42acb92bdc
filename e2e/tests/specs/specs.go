// Package specs runs the ginkgo suites that stand in a lab.
package specs

import (
	"os"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// AtMost is how long a spec may take in which much is waited for, one after the other. As harness.Patience it only ends what is in vain.
const AtMost = ginkgo.NodeTimeout(4 * harness.Patience)

// Run runs the specs of the calling package. They wait with harness.Patience unless they say otherwise. The messages of those that failed
// come once more at the end, where whoever has only the end of a long output finds them.
func Run(t *testing.T, title string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the lab needs root: it makes network namespaces, mounts and device nodes")
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.EnforceDefaultTimeoutsWhenUsingContexts()
	gomega.SetDefaultEventuallyTimeout(harness.Patience)
	gomega.SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	ginkgo.ReportAfterSuite("why specs failed", func(report ginkgo.Report) {
		for _, spec := range report.SpecReports.WithState(types.SpecStateFailureStates) {
			ginkgo.GinkgoWriter.Printf("%s\n%s\n%s\n", spec.FullText(), spec.FailureLocation(), spec.FailureMessage())
		}
	})
	ginkgo.RunSpecs(t, title)
}
