package suite

import (
	"context"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tessera-gpu/tessera/e2e/expect"
)

// examples are the manifests of deployments/examples, each with its own expectation.
var examples = must(expect.Load(os.DirFS("../../deployments/examples")))

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var _ = Describe("Examples", func() {
	for _, example := range examples {
		It("come out as "+example.File+" says", func(ctx context.Context) {
			watcher, err := expect.NewWatcher(ctx, c.Client)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func(ctx context.Context) {
				Expect(c.Delete(ctx, example.Objects...)).To(Succeed())
				nothingLeft(ctx)
			})
			ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
			defer cancel()
			outcomes, err := watcher.Run(ctx, c, example)
			Expect(err).NotTo(HaveOccurred())
			for _, outcome := range outcomes {
				Expect(expect.Compare(outcome, outcomes)).To(BeEmpty(), "%s", outcome.Subject)
			}
		})
	}
})
