package installation

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/tests/specs"
)

// c is the cluster of the process, log the history of its nodes.
var (
	c   *cluster.Cluster
	log *history
)

const limit = specs.AtMost

func TestInstallation(t *testing.T) {
	specs.Run(t, specs.Installation)
}

// archives are the images of every lab. They are built once.
var archives []string

var _ = SynchronizedBeforeSuite(func(ctx context.Context) []byte {
	built, err := cluster.InstallerImages(ctx, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	return []byte(strings.Join(built, "\n"))
}, func(built []byte) {
	archives = strings.Split(string(built), "\n")
}, NodeTimeout(25*time.Minute))

// start creates a cluster of bare nodes for the container, and records the phases of its nodes.
func start(name string, nodes []lab.NodeSpec) {
	BeforeAll(func(ctx context.Context) {
		folder := filepath.Join(lab.Base, name)
		Expect(lab.Down(ctx, folder)).To(Succeed(), "remove the lab of an earlier run")
		if os.Getenv("TESSERA_KEEP_LAB") == "" {
			DeferCleanup(lab.Down, folder)
		}
		var err error
		c, err = cluster.Bare(ctx, cluster.Config{Folder: folder, Nodes: nodes, Images: archives, Progress: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		log = record() //nolint:contextcheck // it outlives the node
		DeferCleanup(log.end)
	}, limit)
}

// The specs of a container run in order: each starts from the state that the previous one left. After a failed spec the others still run. The
// containers have their own clusters, so that they can run in parallel.
var _ = Describe("The installer", Ordered, ContinueOnFailure, func() {
	start("installation", nodes())
	installs()
	schedules()
	keepsPodsAlive()
	upgrades()
	monitored()
	leaves()
})

// The cluster is empty: the pages install Tessera, use it and remove it.
var _ = Describe("The documentation", Ordered, ContinueOnFailure, func() {
	start("installation-pages", nodes())
	followsPages()
})

var _ = Describe("The installer on ready nodes", Ordered, ContinueOnFailure, func() {
	start("installation-ready", nodes())
	BeforeAll(func(ctx context.Context) {
		driver := cluster.Values{"images": cluster.Values{"driver": cluster.Values{"version": cluster.NewDriver}}}
		Expect(c.InstallChart(ctx, driver)).To(Succeed())
		allReady(ctx, cluster.NewDriver, bare()...)
		hasten(ctx)
	}, limit)
	changesMIGModes()
	heals()
	suffers()
	takesOver()
})
