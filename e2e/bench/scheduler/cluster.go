package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// writers is the number of concurrent writes.
const writers = 16

// cluster is a fleet on an API server. No kubelet runs, and no controller.
type cluster struct {
	*fleet.Fleet
	plane  *harness.Plane
	client kubernetes.Interface
}

// populate writes the fleet and the DeviceClasses to the API server.
func populate(ctx context.Context, plane *harness.Plane, s fleet.Spec) (*cluster, error) {
	f, err := fleet.New(s)
	if err != nil {
		return nil, err
	}
	access, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig)
	if err != nil {
		return nil, err
	}
	access.QPS = -1
	access.ContentType, access.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return nil, err
	}
	c := &cluster{Fleet: f, plane: plane, client: client}
	if err := c.classes(ctx); err != nil {
		return nil, err
	}
	return c, each(ctx, f.Nodes, c.publish)
}

// each does the work for the numbers from 0, several at a time.
func each(ctx context.Context, n int, work func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error { return work(ctx, i) })
	}
	return group.Wait()
}

// classes creates the shipped DeviceClasses.
func (c *cluster) classes(ctx context.Context) error {
	classes, err := fleet.Classes()
	if err != nil {
		return err
	}
	for _, class := range classes {
		if _, err := c.client.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// publish creates a node and its slices.
func (c *cluster) publish(ctx context.Context, node int) error {
	if _, err := c.client.CoreV1().Nodes().Create(ctx, c.Node(node), metav1.CreateOptions{}); err != nil {
		return err
	}
	// The API server taints every new node as not ready, and no controller removes that.
	untaint := []byte(`{"spec":{"taints":null}}`)
	if _, err := c.client.CoreV1().Nodes().Patch(ctx, c.Name(node), types.MergePatchType, untaint, metav1.PatchOptions{}); err != nil {
		return err
	}
	slices, err := c.Slices(node)
	if err != nil {
		return err
	}
	for i := range slices {
		if _, err := c.client.ResourceV1().ResourceSlices().Create(ctx, &slices[i], metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// fill allocates the claims that the level adds.
func (c *cluster) fill(ctx context.Context, level fleet.Level) error {
	return each(ctx, c.Nodes, func(ctx context.Context, node int) error {
		claims, err := c.Held(node, level)
		if err != nil {
			return err
		}
		for _, claim := range claims {
			if err := c.hold(ctx, claim); err != nil {
				return fmt.Errorf("allocate %s: %w", claim.Name, err)
			}
		}
		return nil
	})
}

func (c *cluster) hold(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	claims, status := c.client.ResourceV1().ResourceClaims(claim.Namespace), claim.Status
	created, err := claims.Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Status = status
	_, err = claims.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}

// submit creates the claims of the batch, and then its pods.
func (c *cluster) submit(ctx context.Context, b fleet.Batch) error {
	units := b.Units()
	err := each(ctx, len(units), func(ctx context.Context, i int) error {
		claim := units[i].Claim
		if claim == nil {
			return nil
		}
		_, err := c.client.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return each(ctx, len(units), func(ctx context.Context, i int) error {
		pod := units[i].Pod
		_, err := c.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// remove removes the batch as if its pods had ended: their devices are free again.
func (c *cluster) remove(ctx context.Context, b fleet.Batch) error {
	units, now := b.Units(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	return each(ctx, len(units), func(ctx context.Context, i int) error {
		unit := units[i]
		if err := c.client.CoreV1().Pods(unit.Pod.Namespace).Delete(ctx, unit.Pod.Name, now); err != nil || unit.Claim == nil {
			return err
		}
		claims, release := c.client.ResourceV1().ResourceClaims(unit.Claim.Namespace), []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := claims.Patch(ctx, unit.Claim.Name, types.MergePatchType, release, metav1.PatchOptions{}); err != nil {
			return err
		}
		return claims.Delete(ctx, unit.Claim.Name, now)
	})
}
