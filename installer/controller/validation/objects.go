// Package validation reads how far the validations of nodes and GPUs are, and describes those to create. A validation is a claim and a pod for each of
// its parts.
package validation

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Objects are the claim and the pod of a part of a validation; nil where one does not exist.
type Objects struct {
	Pod   *corev1.Pod
	Claim *resourceapi.ResourceClaim
}

// ReadObjects reads the objects of a part from the cache.
func ReadObjects(ctx context.Context, cluster action.Cluster, node string, part action.ValidationPart) (Objects, error) {
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: action.ValidationName(node, part)}
	o := Objects{Pod: &corev1.Pod{}, Claim: &resourceapi.ResourceClaim{}}
	errPod, errClaim := cluster.Client.Get(ctx, key, o.Pod), cluster.Client.Get(ctx, key, o.Claim)
	for _, err := range []error{errPod, errClaim} {
		if client.IgnoreNotFound(err) != nil {
			return o, fmt.Errorf("read validation of node %s: %w", node, err)
		}
	}
	if errPod != nil {
		o.Pod = nil
	}
	if errClaim != nil {
		o.Claim = nil
	}
	return o, nil
}

// Exist reports whether one of the objects exists.
func (o Objects) Exist() bool { return o.Pod != nil || o.Claim != nil }

// Allocated reports whether the claim has its devices.
func (o Objects) Allocated() bool { return o.Claim != nil && o.Claim.Status.Allocation != nil }

// AwaitsPod reports whether the claim of an attempt exists as it was created and its pod is still to be created: the installer ended between the two.
func (o Objects) AwaitsPod(barrier string) bool {
	return o.Pod == nil && o.Claim != nil && !o.Allocated() && o.Claim.DeletionTimestamp == nil && o.Claim.Annotations[action.AnnotationBarrier] == barrier
}

// PendingPod stands for the pod that is still to be created: the time of the attempt begins with the claim.
func (o Objects) PendingPod() phase.Pod {
	return phase.Pod{State: phase.PodPending, Since: o.Claim.CreationTimestamp.Time}
}

// Combine returns the validation whose parts have these pods, based on v: it fails with the first part that failed, runs while one runs, and has passed
// when all have, with their messages. Without pods it is v. Objects of a validation that is over are left over.
func Combine(v phase.Validation, parts []phase.Pod) phase.Validation {
	if len(parts) == 0 {
		return v
	}
	v.State = phase.ValidationPassed
	var notes []string
	for _, part := range parts {
		if v.Since.IsZero() || part.Since.Before(v.Since) {
			v.Since = part.Since
		}
		switch {
		case part.State == phase.PodFailed:
			v.State, v.Reason, v.Message, v.Leftover = phase.ValidationFailed, part.Reason, part.Message, true
			return v
		case part.State == phase.PodSucceeded && part.Message != "":
			notes = append(notes, part.Message)
		case part.State != phase.PodSucceeded:
			v.State = phase.ValidationRunning
			if v.Reason == "" {
				v.Reason, v.Message = part.Reason, part.Message
			}
		}
	}
	if v.State == phase.ValidationPassed {
		v.Leftover, v.Message = true, strings.Join(notes, "; ")
	}
	return v
}

// Describe returns a validation of a node or GPU, without its parts and scope. image is the image of the node agent in the release.
func Describe(c *catalog.Catalog, node *v1alpha1.GPUNode, barrier, image string) action.Validation {
	spec := c.Policy.Spec
	agent := spec.NodeAgent.Component
	agent.Image = cmp.Or(agent.Image, image)
	return action.Validation{
		Node: node, Barrier: barrier, Agent: agent, Component: spec.Validator.Component,
		PullSecrets: spec.DaemonSets.ImagePullSecrets, Scheduler: render.SchedulerOfDevices(spec), Timeout: spec.Validator.Timeout.Duration,
	}
}
