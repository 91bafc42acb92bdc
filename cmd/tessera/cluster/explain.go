package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ExplainError adds to the error of a request what was requested and, for common causes, what to do. It returns nil for nil.
func ExplainError(request string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: interrupted: %w", request, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %w\nYour user lacks this permission. An administrator can grant it with a ClusterRole; \"kubectl auth can-i --list\" lists your permissions", request, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w\nThe credentials were rejected: log in again, or choose another --context", request, err)
	case apierrors.IsNotFound(err) && !namesObject(err):
		return fmt.Errorf("%s: %w\nThe cluster does not serve resource.k8s.io/v1, which Tessera requires: check that Kubernetes is 1.36 or newer and that Dynamic Resource Allocation is enabled", request, err)
	case isUnreachable(err):
		return fmt.Errorf("%s: %w\nThe API server is not reachable: check the network, --context and --kubeconfig", request, err)
	}
	return fmt.Errorf("%s: %w", request, err)
}

// isUnreachable reports whether the request got no response.
func isUnreachable(err error) bool {
	var request *url.Error
	var network net.Error
	return errors.As(err, &request) || errors.As(err, &network)
}

// namesObject reports whether the error is about one object, not about a resource that the API server does not serve.
func namesObject(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}
