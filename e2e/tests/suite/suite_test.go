package suite

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

// c is the cluster that all specs share. Specs leave it as they found it.
var c *cluster.Cluster

// images are the archives that every lab of the suites gets, built once.
var images []string

// folder is where the suite's lab stands; the demo's is another one, so both can.
var folder = filepath.Join(lab.Base, "suite")

const atMost = specs.AtMost

func TestSuite(t *testing.T) {
	specs.Run(t, "Tessera in a lab")
}

var _ = BeforeSuite(func(ctx context.Context) {
	Expect(lab.Down(ctx, folder)).To(Succeed(), "what an earlier run left behind")
	var err error
	images, err = cluster.Images(ctx, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	c, err = cluster.Up(ctx, cluster.Config{Folder: folder, Images: images, Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(25*time.Minute))

var _ = AfterSuite(func(ctx context.Context) {
	if os.Getenv("TESSERA_KEEP_LAB") == "" {
		Expect(lab.Down(ctx, folder)).To(Succeed())
	}
}, NodeTimeout(harness.Patience))
