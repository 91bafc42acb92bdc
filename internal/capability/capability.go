// Package capability reads from the discovery documents of an API server which of the kinds that Tessera depends on it serves. The result decides
// which functions run; version numbers are not compared. Only the image of tessera-scheduler is selected by version, by the chart.
package capability

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// ErrTooOld is returned for an API server that lacks a kind which Tessera cannot do without.
var ErrTooOld = errors.New("Tessera requires Kubernetes 1.36 or newer") //nolint:revive,staticcheck // a name

// Discovery is the part of a discovery client that Detect uses.
type Discovery interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// Server is what an API server serves.
type Server struct {
	// TaintRules reports whether DeviceTaintRules are served in resource.k8s.io/v1, as from Kubernetes 1.37 on. The version v1beta2 of Kubernetes 1.36,
	// which is off by default, is not used.
	TaintRules bool
	// NoScheduler is the reason why the release has no tessera-scheduler for the API server, which Detect does not determine. Empty: it has one.
	NoScheduler string
}

// required are kinds that every supported API server serves, and the first older server lacks. MutatingAdmissionPolicies are served in v1 since Kubernetes
// 1.36, in which also partitionable devices, consumable capacity and device taints of ResourceSlices are on by default.
func required() []resource {
	return []resource{
		{"resource.k8s.io/v1", "resourceslices"},
		{"admissionregistration.k8s.io/v1", "mutatingadmissionpolicies"},
	}
}

// resource is a resource of an API version.
type resource struct{ version, name string }

// Detect reads what the API server serves. It sends two requests. The error wraps ErrTooOld if a required kind is missing; any other error is that of a
// request, which can be repeated.
func Detect(client Discovery) (Server, error) {
	var s Server
	for _, r := range required() {
		served, err := serves(client, r)
		if err != nil {
			return Server{}, fmt.Errorf("read what the API server serves: %w", err)
		}
		if !slices.Contains(served, r.name) {
			return Server{}, fmt.Errorf("the API server does not serve %s in %s: %w", r.name, r.version, ErrTooOld)
		}
		s.TaintRules = s.TaintRules || r.version == "resource.k8s.io/v1" && slices.Contains(served, "devicetaintrules")
	}
	return s, nil
}

// Read returns what the API server of the configuration serves, as Detect.
func Read(access *rest.Config) (Server, error) {
	client, err := discovery.NewDiscoveryClientForConfig(access)
	if err != nil {
		return Server{}, err
	}
	return Detect(client)
}

// serves returns the names of the resources in the API version; none if the version is not served.
func serves(client Discovery, r resource) ([]string, error) {
	list, err := client.ServerResourcesForGroupVersion(r.version)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, found := range list.APIResources {
		names = append(names, found.Name)
	}
	return names, nil
}

// Scheduler reports whether tessera-scheduler can run: the API server serves DeviceTaintRules, which it watches, and the release has one that is neither newer
// than the API server nor too old for it.
func (s Server) Scheduler() bool { return s.TaintRules && s.NoScheduler == "" }

// Reduced returns what is reduced on this API server, one sentence each; none if all functions are available.
func (s Server) Reduced() []string {
	const (
		allocation = ": kube-scheduler allocates the devices, in the order in which they are published"
		assignment = "no policy assigns pods to tessera-scheduler, and no taint reserves devices for it"
	)
	switch {
	case !s.TaintRules:
		return []string{
			"tessera-scheduler does not run, because a scheduler must not be newer than its API server, and this one does not serve DeviceTaintRules " +
				"(resource.k8s.io/v1)" + allocation,
			assignment,
			"the taint of GPUs under maintenance is part of the node's ResourceSlices instead of a DeviceTaintRule",
		}
	case s.NoScheduler != "":
		return []string{
			"tessera-scheduler does not run, because a scheduler must not be newer than its API server, and at most one minor version older (" +
				s.NoScheduler + ")" + allocation,
			assignment,
			"to run it, upgrade Tessera to a release for this version of Kubernetes, or, if the control plane was upgraded since, run helm upgrade",
		}
	}
	return nil
}

// Explain returns the sentences of Reduced as one text.
func (s Server) Explain() string { return strings.Join(s.Reduced(), "; ") }
