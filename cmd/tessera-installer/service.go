package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/render"
)

// annotationReplicas is the annotation of the installer's Deployment with its replicas before the removal.
const annotationReplicas = "tessera.dev/replicas-before-removal"

// undoTime limits the return of the GPUs to service. It is shorter than the grace period of the cleanup pod.
const undoTime = 25 * time.Second

// uninstalling is the reason of the maintenance.
const uninstalling = "Tessera is being uninstalled"

// stopInstaller scales the installer to zero, so that it does not recreate removed objects.
func (c *cleaner) stopInstaller(ctx context.Context) error {
	deployment, err := c.installer(ctx)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	had := deployment.Annotations[annotationReplicas]
	if had == "" {
		had = strconv.Itoa(int(ptr.Deref(deployment.Spec.Replicas, 1)))
	}
	if err := c.scale(ctx, deployment, 0, had); err != nil {
		return err
	}
	return c.gone(ctx, render.OperandInstaller)
}

// startInstaller restores the replicas of the installer's Deployment.
func (c *cleaner) startInstaller(ctx context.Context) error {
	deployment, err := c.installer(ctx)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	text, remembered := deployment.Annotations[annotationReplicas]
	if !remembered {
		return nil
	}
	had, err := strconv.Atoi(text)
	if err != nil {
		had = 1
	}
	return c.scale(ctx, deployment, had, nil)
}

// installer returns the installer's Deployment.
func (c *cleaner) installer(ctx context.Context) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	if err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: render.OperandInstaller}, deployment); err != nil {
		return nil, fmt.Errorf("read Deployment %s: %w", render.OperandInstaller, err)
	}
	return deployment, nil
}

// scale sets the replicas of the installer's Deployment and the annotation with its former replicas: a text, or nil to remove it.
func (c *cleaner) scale(ctx context.Context, deployment *appsv1.Deployment, replicas int, remembered any) error {
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{annotationReplicas: remembered}}, "spec": map[string]any{"replicas": replicas},
	})
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, data)
	if err := c.Client.Patch(ctx, deployment, patch, client.FieldOwner(action.Manager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("scale Deployment %s to %d: %w", render.OperandInstaller, replicas, err)
	}
	return nil
}

// close takes the GPUs out of service as for an upgrade: a device taint, a node label, and a maintenance in which agents refuse claims. A node that is
// already in another maintenance is unchanged.
func (c *cleaner) close(ctx context.Context) error {
	names, err := c.agentDrivers(ctx)
	if err != nil {
		return err
	}
	return c.eachNode(ctx, func(node *v1alpha1.GPUNode) error {
		driver := cmp.Or(names[node.Spec.AgentPool], names[""])
		err := errors.Join(c.TaintNodeGPUs(ctx, node, driver, string(v1alpha1.OperationRemoval)),
			c.mark(ctx, node.Name, string(v1alpha1.OperationRemoval)))
		if err != nil || node.Spec.Maintenance != nil {
			return err
		}
		m := v1alpha1.Maintenance{Operation: v1alpha1.OperationRemoval, Reason: uninstalling}
		return c.EnterMaintenance(ctx, node, m, time.Now())
	})
}

// reopen is the inverse of close. Other maintenances are unchanged; the installer continues them.
func (c *cleaner) reopen(ctx context.Context) error {
	return c.eachNode(ctx, func(node *v1alpha1.GPUNode) error {
		if m := node.Spec.Maintenance; m != nil && m.Operation != v1alpha1.OperationRemoval {
			return nil
		}
		if err := c.LeaveMaintenance(ctx, node); err != nil {
			return err
		}
		return errors.Join(c.UntaintNodeGPUs(ctx, node), c.mark(ctx, node.Name, ""))
	})
}

// eachNode calls do with a fresh copy of each GPUNode and retries conflicts. It continues after errors and returns all of them.
func (c *cleaner) eachNode(ctx context.Context, do func(*v1alpha1.GPUNode) error) error {
	nodes := &v1alpha1.GPUNodeList{}
	if err := c.Client.List(ctx, nodes); err != nil {
		return fmt.Errorf("list GPUNodes: %w", err)
	}
	var failed error
	for _, listed := range nodes.Items {
		failed = errors.Join(failed, retryConflict(func() error {
			node := &v1alpha1.GPUNode{}
			if err := c.Client.Get(ctx, types.NamespacedName{Name: listed.Name}, node); err != nil {
				return client.IgnoreNotFound(err)
			}
			return do(node)
		}))
	}
	return failed
}

// mark sets the maintenance label of a Node, with which the scheduler rejects the node; an empty operation removes it.
func (c *cleaner) mark(ctx context.Context, name, operation string) error {
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if operation != "" && node.Labels[v1alpha1.LabelMaintenance] != "" {
		return nil
	}
	return c.SetNodeLabels(ctx, node, map[string]string{v1alpha1.LabelMaintenance: operation})
}

// agentDrivers returns the DRA driver names of agents by pool; the empty pool has that of all other pools, also of those without a configuration.
func (c *cleaner) agentDrivers(ctx context.Context) (map[string]string, error) {
	names := map[string]string{"": v1alpha1.DriverName}
	policies := &v1alpha1.ClusterPolicyList{}
	if err := c.Client.List(ctx, policies); err != nil {
		return nil, fmt.Errorf("list ClusterPolicies: %w", err)
	}
	for _, policy := range policies.Items {
		if config := policy.Spec.NodeAgent.Config; config != nil {
			names[""] = cmp.Or(config.DriverName, v1alpha1.DriverName)
		}
		for _, pool := range policy.Spec.NodeAgent.Pools {
			if pool.Config != nil {
				names[pool.Name] = cmp.Or(pool.Config.DriverName, v1alpha1.DriverName)
			}
		}
	}
	return names, nil
}

// undo returns the GPUs to service after a removal that failed before the agents were removed. It runs even if ctx has ended.
func (c *cleaner) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := errors.Join(c.reopen(ctx), c.startInstaller(ctx)); err != nil {
		return fmt.Errorf("return the GPUs to service: %w; run the command again to continue", err)
	}
	c.out.Printf("the GPUs are back in service: only monitors were removed, and the installer creates them again\n")
	return nil
}

// silent returns a function that reports whether a node is absent or not Ready. Such nodes are not waited for; each is printed once.
func (c *cleaner) silent(ctx context.Context) (func(node string) bool, error) {
	nodes := &corev1.NodeList{}
	if err := c.Client.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	ready := map[string]bool{}
	for _, node := range nodes.Items {
		ready[node.Name] = slices.ContainsFunc(node.Status.Conditions, func(is corev1.NodeCondition) bool {
			return is.Type == corev1.NodeReady && is.Status == corev1.ConditionTrue
		})
	}
	return func(name string) bool {
		if name == "" || ready[name] {
			return false
		}
		if !c.named[name] {
			c.named[name] = true
			c.out.Printf("  node %s is not Ready and is skipped; its pods terminate when the node returns\n", name)
		}
		return true
	}, nil
}
