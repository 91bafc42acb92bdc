package suite

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/tests/specs"
)

// c is the cluster that the specs of a process share. Every spec restores its state.
var c *cluster.Cluster

// images are the archives that every lab of the suite loads; they are built once.
var images []string

const atMost = specs.AtMost

func TestSuite(t *testing.T) {
	specs.Run(t, specs.Suite)
}

var _ = SynchronizedBeforeSuite(func(ctx context.Context) []byte {
	archives, err := cluster.Images(ctx, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	return []byte(strings.Join(archives, "\n"))
}, func(ctx context.Context, archives []byte) {
	images = strings.Split(string(archives), "\n")
	folder := specs.Folder("suite")
	Expect(lab.Down(ctx, folder)).To(Succeed(), "remove the lab of an earlier run")
	var err error
	c, err = cluster.Up(ctx, cluster.Config{Folder: folder, Images: images, Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(25*time.Minute))

var _ = AfterSuite(func(ctx context.Context) {
	if os.Getenv("TESSERA_KEEP_LAB") == "" {
		Expect(lab.Down(ctx, specs.Folder("suite"))).To(Succeed())
	}
}, NodeTimeout(harness.Patience))
