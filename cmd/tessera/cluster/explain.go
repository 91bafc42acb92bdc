package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Explain returns the error of a request in the words of somebody who has to do something about it:
// what was asked for, what is wrong, what helps. nil stays nil.
func Explain(asked string, err error) error {
	var unreachable *url.Error
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: interrupted: %w", asked, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %w\nYour user may not do this. An administrator can grant it with a ClusterRole; \"kubectl auth can-i --list\" tells what you may", asked, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w\nThe cluster does not know you: log in again, or choose another --context", asked, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w\nThe cluster does not serve what Tessera needs, resource.k8s.io/v1: is it Kubernetes 1.36 or newer, with Dynamic Resource Allocation on?", asked, err)
	case errors.As(err, &unreachable), errors.As(err, &network):
		return fmt.Errorf("%s: %w\nThe cluster does not answer: is it the one that you mean (--context, --kubeconfig), and can it be reached from here?", asked, err)
	}
	return fmt.Errorf("%s: %w", asked, err)
}
