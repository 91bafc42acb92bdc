package upgrade

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

// Report is the pending change of drivers.
type Report struct {
	// Preview reports that it is the preview of an edit.
	Preview bool `json:"preview,omitempty"`
	// Problems are reasons why a driver could not be determined.
	Problems []string `json:"problems,omitempty"`
	// Drivers are the ClusterPolicy and the NVIDIADrivers.
	Drivers []Driver `json:"drivers"`
}

// Driver is the pending change of one object.
type Driver struct {
	// Name is ClusterPolicy/default or NVIDIADriver/<name>.
	Name string `json:"name"`
	// Stale reports that the installer has not processed the latest edit; the other fields are from before it.
	Stale bool `json:"stale,omitempty"`
	// Paused reports that changes are paused by annotation.
	Paused bool `json:"paused,omitempty"`
	// Conflicts are nodes that another driver selects, too.
	Conflicts []string                `json:"conflicts,omitempty"`
	Plan      *v1alpha1.Plan          `json:"plan,omitempty"`
	Rollout   *v1alpha1.RolloutStatus `json:"rollout,omitempty"`
}

// loadReport returns the installer's plans from the status of its objects.
func loadReport(ctx context.Context, client dynamic.Interface) (Report, error) {
	report := Report{Drivers: []Driver{}}
	var policies v1alpha1.ClusterPolicyList
	if err := listObjects(ctx, client, "clusterpolicies", &policies); err != nil {
		return Report{}, err
	}
	for _, p := range policies.Items {
		report.Drivers = append(report.Drivers, Driver{
			Name: "ClusterPolicy/" + p.Name, Stale: p.Status.ObservedGeneration != p.Generation, Paused: isPaused(p.ObjectMeta),
			Plan: p.Status.Plan, Rollout: p.Status.Rollout,
		})
	}
	var drivers v1alpha1.NVIDIADriverList
	if err := listObjects(ctx, client, "nvidiadrivers", &drivers); err != nil {
		return Report{}, err
	}
	for _, d := range drivers.Items {
		report.Drivers = append(report.Drivers, Driver{
			Name: "NVIDIADriver/" + d.Name, Stale: d.Status.ObservedGeneration != d.Generation, Paused: isPaused(d.ObjectMeta),
			Conflicts: d.Status.Conflicts, Plan: d.Status.Plan, Rollout: d.Status.Rollout,
		})
	}
	return report, nil
}

// listObjects lists the objects of one of Tessera's kinds.
func listObjects(ctx context.Context, client dynamic.Interface, resource string, into any) error {
	found, err := client.Resource(v1alpha1.GroupVersion.WithResource(resource)).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("list the %s: %w\nThe CRD is missing: check that the installer's chart is installed", resource, err)
	}
	if err != nil {
		return cluster.ExplainError("list the "+resource, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), into); err != nil {
		return fmt.Errorf("read the %s: %w", resource, err)
	}
	return nil
}

// isPaused reports whether changes are paused. Any value of the annotation but the empty one pauses them.
func isPaused(meta metav1.ObjectMeta) bool { return meta.Annotations[v1alpha1.AnnotationPause] != "" }
