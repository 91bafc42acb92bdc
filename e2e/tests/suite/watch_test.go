package suite

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// answer calls ask until it succeeds: a server or connection may be unavailable for a short time.
func answer[T any](ctx context.Context, ask func(context.Context) (T, error)) (told T) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (err error) {
		told, err = ask(ctx)
		return err
	}).Should(Succeed())
	return told
}

// gone returns when the object is not found.
func gone(ctx context.Context, get func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, harness.Patience, true, func(context.Context) (bool, error) {
		last = get()
		return apierrors.IsNotFound(last), nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
