package expect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Applier writes objects to the cluster that a Watcher follows. Its errors wrap those of the API server.
type Applier interface {
	Apply(ctx context.Context, objects ...*unstructured.Unstructured) error
}

// Run applies the example's objects, one after the other, and returns what has come of its subjects, in
// their order, as soon as all have settled. When ctx ends before, it returns what they are then.
func (w *Watcher) Run(ctx context.Context, to Applier, e Example) ([]Outcome, error) {
	outcomes := make([]Outcome, len(e.Subjects))
	next := 0
	for _, object := range e.Objects {
		own := identify(object)
		expected := next < len(e.Subjects) && e.Subjects[next].identifies(own)
		refusal, err := w.apply(ctx, to, object)
		switch {
		case err != nil:
			return nil, fmt.Errorf("run %s: %w", e.File, err)
		case expected && e.Subjects[next].Expectation.Phase == Refused:
			outcomes[next] = refused(e.Subjects[next], refusal)
		case refusal != "":
			return nil, fmt.Errorf("run %s: %s is refused: %s", e.File, own, refusal)
		}
		if expected {
			next++
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, subject := range e.Subjects {
		if subject.Expectation.Phase == Refused {
			continue
		}
		group.Go(func() (err error) {
			outcomes[i], err = w.Await(ctx, subject)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("run %s: %w", e.File, err)
	}
	return outcomes, nil
}

// identifies reports whether both are the same object.
func (s Subject) identifies(other Subject) bool {
	return s.Kind == other.Kind && s.Namespace == other.Namespace && s.Name == other.Name
}

func refused(s Subject, refusal string) Outcome {
	if refusal == "" {
		return Outcome{Subject: s, Phase: Accepted, Explanation: "the API server took it"}
	}
	return Outcome{Subject: s, Phase: Refused, Explanation: refusal}
}

// pause lies between two looks at something that has no informer.
const pause = 100 * time.Millisecond

// apply writes one object. It returns why the API server refuses it, if it does so for what the object
// says.
func (w *Watcher) apply(ctx context.Context, to Applier, object *unstructured.Unstructured) (refusal string, err error) {
	err = wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		err := to.Apply(ctx, object)
		if premature(err) {
			return false, nil
		}
		return true, err
	})
	var status apierrors.APIStatus
	switch {
	case err == nil:
	case (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) && errors.As(err, &status):
		return status.Status().Message, nil
	default:
		return "", err
	}
	if object.GetKind() == "ResourceQuota" {
		err = w.awaitQuota(ctx, identify(object))
	}
	return "", err
}

// premature reports whether the API server refuses an object until controllers have done their part: counted what a quota limits, or made the account
// that pods of a new namespace run under.
func premature(err error) bool {
	return apierrors.IsForbidden(err) &&
		(strings.Contains(err.Error(), "status unknown for quota") || strings.Contains(err.Error(), "error looking up service account"))
}
