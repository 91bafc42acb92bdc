package installation

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/tests/specs"
)

// c is the cluster that all specs share, in their order; log is what became of its nodes.
var (
	c   *cluster.Cluster
	log *history
)

// folder is where the suite's lab stands, beside those of the demo and the other suite.
var folder = filepath.Join(lab.Base, "installation")

const limit = specs.AtMost

func TestInstallation(t *testing.T) {
	specs.Run(t, "Tessera's installer in a lab")
}

var _ = BeforeSuite(func(ctx context.Context) {
	Expect(lab.Down(ctx, folder)).To(Succeed(), "what an earlier run left behind")
	var err error
	c, err = cluster.Bare(ctx, cluster.Config{Folder: folder, Nodes: nodes(), Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(25*time.Minute))

var _ = AfterSuite(func(ctx context.Context) {
	if log != nil {
		log.end()
	}
	if os.Getenv("TESSERA_KEEP_LAB") == "" {
		Expect(lab.Down(ctx, folder)).To(Succeed())
	}
}, NodeTimeout(harness.Patience))

// The specs follow each other: each begins with what the one before it has left, and the last removes everything. A spec that fails does
// not keep the others from being tried.
var _ = Describe("The installer", Ordered, ContinueOnFailure, func() {
	installs()
	keepsPodsAlive()
	upgrades()
	changesMIGModes()
	heals()
	suffers()
	takesOver()
	leaves()
})
