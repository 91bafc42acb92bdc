package specs

import (
	"fmt"
	"strings"

	"github.com/onsi/ginkgo/v2"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// exception is a spec, or a container of specs, that cannot pass with a version of Kubernetes.
type exception struct {
	// suite is the title of the suite, text the beginning of the full text of its specs.
	suite, text string
	reason      string
}

// Titles of the suites.
const (
	Suite        = "Tessera in a lab"
	Installation = "Tessera's installer in a lab"
	VM           = "Tessera on virtual machines"
)

// ownScheduler is the reason of an exception.
const ownScheduler = "tessera-scheduler does not run: a scheduler must not be newer than its API server"

// exceptions returns the specs that are skipped with a minor version of Kubernetes.
func exceptions(kubernetes string) []exception {
	if kubernetes != binaries.Kubernetes136 {
		return []exception{
			{Installation, "An upgrade of Kubernetes ", "it begins with Kubernetes " + binaries.Kubernetes136},
			{Installation, "The installer on ready nodes evicts no pod that replaces ", "tessera-scheduler starts no pod on a GPU that is drained"},
		}
	}
	return []exception{
		{Suite, "tessera-scheduler ", ownScheduler},
		{Suite, "A scheduler that leads ", ownScheduler},
		{Suite, "A second scheduler ", ownScheduler},
		{Installation, "The installer on ready nodes takes out one of two ", "kube-scheduler starts the replacement of a pod on the GPU of its claim while " +
			"the GPU is drained"},
		{Installation, "The installer assigns pods with GPUs to tessera-scheduler", ownScheduler},
		{Installation, "The documentation leads through docs/tasks/pending-pods.md", ownScheduler},
		{Installation, "The documentation leads through docs/troubleshooting.md", ownScheduler},
	}
}

// find returns the exception for a spec.
func find(list []exception, suite, text string) (exception, bool) {
	for _, e := range list {
		if e.suite == suite && strings.HasPrefix(text, e.text) {
			return e, true
		}
	}
	return exception{}, false
}

// skipExceptions skips the exceptions of a suite with the version of Kubernetes that the environment selects, and fails if one of them matches no spec.
func skipExceptions(suite string) {
	version, err := binaries.KubernetesVersion()
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	list := exceptions(version)
	ginkgo.BeforeEach(func() {
		if e, found := find(list, suite, ginkgo.CurrentSpecReport().FullText()); found {
			ginkgo.Skip(fmt.Sprintf("Kubernetes %s: %s", version, e.reason))
		}
	})
	ginkgo.ReportAfterSuite("exceptions match specs", func(report ginkgo.Report) {
		if stale := unmatched(list, suite, report); len(stale) > 0 {
			ginkgo.Fail(fmt.Sprintf("no spec begins with %q: update exceptions() in e2e/tests/specs/skip.go", stale))
		}
	})
}

// unmatched returns the texts of the exceptions of a suite that match none of its specs, including those that the focus left out.
func unmatched(list []exception, suite string, report ginkgo.Report) []string {
	var stale []string
	for _, e := range list {
		matches := false
		for _, spec := range report.SpecReports {
			matches = matches || strings.HasPrefix(spec.FullText(), e.text)
		}
		if e.suite == suite && !matches {
			stale = append(stale, e.text)
		}
	}
	return stale
}
