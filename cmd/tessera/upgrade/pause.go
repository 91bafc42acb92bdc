package upgrade

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// pause sets the annotation that pauses upgrades.
func pause(ctx context.Context, c *cluster.Cluster, r cluster.Request) error {
	var object metav1.PartialObjectMetadata
	if err := c.Read(ctx, r.Target, &object); err != nil {
		return err
	}
	if isPaused(object.ObjectMeta) {
		return r.Report("upgrades are already paused")
	}
	if err := c.Apply(ctx, cluster.Annotate(r.Target, v1alpha1.AnnotationPause, new("true")), r.DryRun); err != nil {
		return err
	}
	return r.Report("upgrades paused: nodes in progress finish, no further node starts" + r.DryRun.Suffix())
}

// rollingOut is the part of a ClusterPolicy and of an NVIDIADriver about the rollout. A GPUNode has none of it.
type rollingOut struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		ObservedGeneration int64                   `json:"observedGeneration"`
		Rollout            *v1alpha1.RolloutStatus `json:"rollout"`
	} `json:"status"`
}

// resume removes the annotation that pauses upgrades. Without it, it permits the rollout that is paused for another reason.
func resume(ctx context.Context, c *cluster.Cluster, r cluster.Request) error {
	var object rollingOut
	if err := c.Read(ctx, r.Target, &object); err != nil {
		return err
	}
	if isPaused(object.ObjectMeta) {
		if err := c.Apply(ctx, cluster.Annotate(r.Target, v1alpha1.AnnotationPause, nil), r.DryRun); err != nil {
			return err
		}
		return r.Report("upgrades resumed" + r.DryRun.Suffix())
	}
	rollout := object.Status.Rollout
	switch {
	case r.Target.Kind == cluster.GPUNode:
		return r.Report("upgrades are not paused")
	case object.Status.ObservedGeneration != object.Generation:
		return fmt.Errorf("%s: the installer has not processed the latest edit yet: repeat the command when \"tessera upgrade plan\" shows it", r.Target)
	case rollout == nil || rollout.Stage != v1alpha1.RolloutPaused:
		return r.Report("upgrades are not paused")
	case object.Annotations[v1alpha1.AnnotationResume] == rollout.Digest:
		return r.Report("the rollout " + rollout.Digest + " is already permitted")
	}
	if err := c.Apply(ctx, cluster.Annotate(r.Target, v1alpha1.AnnotationResume, &rollout.Digest), r.DryRun); err != nil {
		return err
	}
	return r.Report("rollout " + rollout.Digest + " resumed" + r.DryRun.Suffix())
}
