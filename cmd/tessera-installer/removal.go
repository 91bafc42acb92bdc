package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// until polls until holds returns an empty text. An error is prefixed with the last returned text.
func (c *cleaner) until(ctx context.Context, holds func(context.Context) (waitsFor string, err error)) error {
	last := ""
	err := wait.PollUntilContextCancel(ctx, c.pause, true, func(ctx context.Context) (bool, error) {
		waitsFor, err := holds(ctx)
		if waitsFor != "" && waitsFor != last {
			c.out.Printf("  %s\n", waitsFor)
		}
		if waitsFor != "" {
			last = waitsFor
		}
		return waitsFor == "", err
	})
	if err != nil && last != "" {
		return fmt.Errorf("%s: %w", last, err)
	}
	return err
}

// mine selects the objects of the installer.
var mine = client.MatchingLabels{render.LabelManagedBy: render.ManagedBy}

// gone waits until no pod with one of these name labels exists, except on nodes that are absent or not Ready.
func (c *cleaner) gone(ctx context.Context, names ...string) error {
	return c.until(ctx, func(ctx context.Context) (string, error) {
		silent, err := c.silent(ctx)
		if err != nil {
			return "", err
		}
		for _, name := range names {
			pods := &corev1.PodList{}
			if err := c.Client.List(ctx, pods, client.InNamespace(c.Namespace), client.MatchingLabels{render.LabelName: name}); err != nil {
				return "", err
			}
			for _, pod := range pods.Items {
				if !silent(pod.Spec.NodeName) {
					return fmt.Sprintf("waiting for pod %s to end", pod.Name), nil
				}
			}
		}
		return "", nil
	})
}

// removeAssignment removes the binding with which new pods are assigned to the scheduler that is going to be removed.
func (c *cleaner) removeAssignment(ctx context.Context) error {
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: render.SchedulerAssignment}}
	if err := c.Client.Delete(ctx, binding); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete MutatingAdmissionPolicyBinding %s: %w", binding.Name, err)
	}
	return nil
}

// removeMonitors removes monitors, which keep GPUs open, and running validations.
func (c *cleaner) removeMonitors(ctx context.Context) error {
	nodes := &v1alpha1.GPUNodeList{}
	if err := c.Client.List(ctx, nodes); err != nil {
		return err
	}
	var failed error
	for i := range nodes.Items {
		node := &nodes.Items[i]
		failed = errors.Join(failed, c.DeleteValidation(ctx, node.Name, action.AllValidationParts(node)...), c.DeleteMIGModePod(ctx, node.Name))
	}
	if failed != nil {
		return failed
	}
	if err := c.removeSets(ctx, render.OperandDCGMExporter, render.OperandDCGM); err != nil {
		return err
	}
	return c.gone(ctx, render.OperandValidation, render.OperandOperation)
}

// removeSets removes the DaemonSets of operands and waits for the end of their pods.
func (c *cleaner) removeSets(ctx context.Context, names ...string) error {
	for _, name := range names {
		list := &appsv1.DaemonSetList{}
		if err := c.Client.List(ctx, list, client.InNamespace(c.Namespace), mine, client.MatchingLabels{render.LabelName: name}); err != nil {
			return err
		}
		for i := range list.Items {
			if err := c.Client.Delete(ctx, &list.Items[i], client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return c.gone(ctx, names...)
}

// release waits until each agent reports that no claim is prepared. User pods that use GPUs after the last agent began to refuse new claims are evicted,
// or fail the removal. The agents refuse the claims of later pods, so these pods do not block the removal.
func (c *cleaner) release(ctx context.Context) error {
	if err := c.agents(ctx, "refuse new claims", refuses); err != nil {
		return err
	}
	held, err := c.held(ctx)
	if err != nil {
		return err
	}
	if len(held) > 0 && c.drain == refuseUsers {
		return c.inUse(held)
	}
	pods := make([]action.PodRef, 0, len(held))
	for _, h := range held {
		pods = append(pods, h.PodRef)
	}
	return c.until(ctx, func(ctx context.Context) (string, error) {
		refused, err := c.EvictPods(ctx, pods)
		if err != nil {
			return "", err
		}
		waitsFor, err := c.agent(ctx, "report that no claim is prepared", released)
		if waitsFor != "" && len(refused) > 0 {
			waitsFor = fmt.Sprintf("waiting for pod %s/%s: %s", refused[0].Namespace, refused[0].Name, refused[0].Reason)
		}
		return waitsFor, err
	})
}

// agents waits until the condition holds for all agents.
func (c *cleaner) agents(ctx context.Context, what string, holds func(*v1alpha1.Maintenance, *v1alpha1.AgentStatus) bool) error {
	return c.until(ctx, func(ctx context.Context) (string, error) { return c.agent(ctx, what, holds) })
}

// agent returns a message that names the first agent for which the condition does not hold, or "". Nodes without an agent and nodes that are absent or
// not Ready are skipped.
func (c *cleaner) agent(ctx context.Context, what string, holds func(*v1alpha1.Maintenance, *v1alpha1.AgentStatus) bool) (string, error) {
	nodes, pods := &v1alpha1.GPUNodeList{}, &corev1.PodList{}
	silent, err := c.silent(ctx)
	err = errors.Join(err, c.Client.List(ctx, nodes),
		c.Client.List(ctx, pods, client.InNamespace(c.Namespace), client.MatchingLabels{render.LabelName: render.OperandNodeAgent}))
	if err != nil {
		return "", err
	}
	for _, node := range nodes.Items {
		runs := slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == node.Name })
		if runs && !silent(node.Name) && !holds(node.Spec.Maintenance, node.Status.Agent) {
			return fmt.Sprintf("waiting for the agent on node %s to %s", node.Name, what), nil
		}
	}
	return "", nil
}

// refuses reports whether an agent refuses new claims for this maintenance.
func refuses(m *v1alpha1.Maintenance, agent *v1alpha1.AgentStatus) bool {
	return m != nil && agent != nil && agent.Maintenance == m.ID
}

// released reports whether an agent has reported in this maintenance that no claim is prepared.
func released(m *v1alpha1.Maintenance, agent *v1alpha1.AgentStatus) bool {
	return refuses(m, agent) && agent.PreparedClaims != nil && *agent.PreparedClaims == 0
}

// removeLabels removes the installer's labels and its taint from all nodes.
func (c *cleaner) removeLabels(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := c.Client.List(ctx, nodes); err != nil {
		return err
	}
	var failed error
	for i := range nodes.Items {
		node := &nodes.Items[i]
		labels := action.OperandLabels(phase.Labels{})
		labels[v1alpha1.LabelRebootRequired] = ""
		for _, key := range action.FeatureLabelKeys() {
			if action.OwnsNodeLabel(node, key) {
				labels[key] = ""
			}
		}
		failed = errors.Join(failed, c.SetNodeLabels(ctx, node, labels))
		err := retryConflict(func() error {
			fresh := &corev1.Node{}
			if err := c.Client.Get(ctx, types.NamespacedName{Name: node.Name}, fresh); err != nil {
				return client.IgnoreNotFound(err)
			}
			return c.RemoveReadinessTaint(ctx, fresh)
		})
		failed = errors.Join(failed, err)
	}
	return failed
}

// retryConflict repeats do while it fails with a conflict, at most five times.
func retryConflict(do func() error) error {
	const tries = 5
	err := do()
	for range tries {
		if !apierrors.IsConflict(err) {
			break
		}
		err = do()
	}
	return err
}

// removeNodes removes the taints of GPUs and the GPUNodes.
func (c *cleaner) removeNodes(ctx context.Context) error {
	nodes := &v1alpha1.GPUNodeList{}
	if err := c.Client.List(ctx, nodes); err != nil {
		return err
	}
	var failed error
	for i := range nodes.Items {
		failed = errors.Join(failed, c.UntaintNodeGPUs(ctx, &nodes.Items[i]),
			client.IgnoreNotFound(c.Client.Delete(ctx, &nodes.Items[i])))
	}
	return failed
}

// removeRest removes all other objects with the installer's label.
func (c *cleaner) removeRest(ctx context.Context) error {
	here := client.InNamespace(c.Namespace)
	var failed error
	kinds := []client.ObjectList{
		&appsv1.DaemonSetList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &resourceapi.ResourceClaimTemplateList{},
		&policyv1.PodDisruptionBudgetList{}, &nodev1.RuntimeClassList{},
	}
	if !c.SliceTaints {
		kinds = append(kinds, &resourceapi.DeviceTaintRuleList{})
	}
	for _, list := range kinds {
		options := []client.ListOption{mine, here}
		switch list.(type) {
		case *nodev1.RuntimeClassList, *resourceapi.DeviceTaintRuleList:
			options = options[:1]
		}
		if err := c.Client.List(ctx, list, options...); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		failed = errors.Join(failed, meta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if !ok {
				return nil
			}
			kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1.")
			if err := c.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("remove %s %s: %w", kind, object.GetName(), err)
			}
			return nil
		}))
	}
	return failed
}
