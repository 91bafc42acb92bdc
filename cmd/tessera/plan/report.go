package plan

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// Report is what is about to happen to drivers.
type Report struct {
	// Supposed is whether it is about an edit that nobody has made.
	Supposed bool `json:"supposed,omitempty"`
	// Problems are why a driver would be unknown.
	Problems []string `json:"problems,omitempty"`
	// Drivers are the ClusterPolicy and the NVIDIADrivers.
	Drivers []Driver `json:"drivers"`
}

// Driver is what one object decides about drivers.
type Driver struct {
	// Name is ClusterPolicy/default or NVIDIADriver/<name>.
	Name string `json:"name"`
	// Stale is whether the installer has not looked at the last edit yet: the rest speaks of what was before it.
	Stale bool `json:"stale,omitempty"`
	// Paused is whether a person has paused changes.
	Paused bool `json:"paused,omitempty"`
	// Conflicts are nodes that another driver chooses as well.
	Conflicts []string                `json:"conflicts,omitempty"`
	Plan      *v1alpha1.Plan          `json:"plan,omitempty"`
	Rollout   *v1alpha1.RolloutStatus `json:"rollout,omitempty"`
}

// load asks the cluster.
func load(ctx context.Context, client dynamic.Interface) (Report, error) {
	report := Report{Drivers: []Driver{}}
	var policies v1alpha1.ClusterPolicyList
	if err := list(ctx, client, "clusterpolicies", &policies); err != nil {
		return Report{}, err
	}
	for _, p := range policies.Items {
		report.Drivers = append(report.Drivers, Driver{
			Name: "ClusterPolicy/" + p.Name, Stale: p.Status.ObservedGeneration != p.Generation, Paused: paused(p.ObjectMeta),
			Plan: p.Status.Plan, Rollout: p.Status.Rollout,
		})
	}
	var drivers v1alpha1.NVIDIADriverList
	if err := list(ctx, client, "nvidiadrivers", &drivers); err != nil {
		return Report{}, err
	}
	for _, d := range drivers.Items {
		report.Drivers = append(report.Drivers, Driver{
			Name: "NVIDIADriver/" + d.Name, Stale: d.Status.ObservedGeneration != d.Generation, Paused: paused(d.ObjectMeta),
			Conflicts: d.Status.Conflicts, Plan: d.Status.Plan, Rollout: d.Status.Rollout,
		})
	}
	return report, nil
}

// list reads all objects of a kind.
func list(ctx context.Context, client dynamic.Interface, resource string, into any) error {
	found, err := client.Resource(v1alpha1.GroupVersion.WithResource(resource)).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("list the %s: %w\nThe cluster does not know them: is the installer's chart installed?", resource, err)
	}
	if err != nil {
		return cluster.Explain("list the "+resource, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), into); err != nil {
		return fmt.Errorf("read the %s: %w", resource, err)
	}
	return nil
}

// paused reports whether a person has paused changes: any value of the annotation does.
func paused(meta metav1.ObjectMeta) bool { return meta.Annotations[v1alpha1.AnnotationPause] != "" }
