package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

// upgradeTimeout is the time limit for the rollout.
const upgradeTimeout = 6 * time.Minute

// upgrade changes the driver of all nodes of the demo's cluster, which it starts if there is none. On the last node of the plan the
// new driver does not load.
func upgrade(ctx context.Context, folder string) error {
	c, programs, err := openCluster(ctx, folder)
	if err != nil {
		return err
	}
	policy, err := c.Policy(ctx)
	if err != nil {
		return err
	}
	if policy.Spec.Driver.Version == cluster.NewDriver {
		return errors.New("the upgrade was already started in this cluster; run `make demo-down` and repeat")
	}
	if err := c.AwaitPolicy(ctx, readyTimeout); err != nil {
		return err
	}
	// A pod and a whole GPU for every node that changes its driver.
	if err := deployPods(ctx, c, "upgrade-workload", int32(len(managedNodes(c)))); err != nil { //nolint:gosec // a lab has a few nodes
		return err
	}
	last, err := planUpgrade(ctx, c)
	if err != nil {
		return err
	}
	if err := c.BreakDriver(last, cluster.NewDriver, cluster.Fails); err != nil {
		return err
	}
	fmt.Printf("Fault injected: driver %s does not load on %s. Starting the upgrade.\n", cluster.NewDriver, last)
	if err := runWithNodeTrace(ctx, c, func(ctx context.Context) error { return runRollout(ctx, c, last) }); err != nil {
		return err
	}
	if err := runKubectl(ctx, c, programs, "get", "gpunodes"); err != nil {
		return err
	}
	printUse(environment(c, programs), []string{showNodes})
	return nil
}

// managedNodes returns the nodes whose driver Tessera installs: that of the node with limits is the node's own.
func managedNodes(c *cluster.Cluster) []*lab.Node {
	return slices.DeleteFunc(c.Nodes(), func(n *lab.Node) bool { return n.Name() == cluster.LimitedNode })
}

// deployPods creates a Deployment whose pods have a whole GPU each, unless it exists, and returns when all pods are ready.
func deployPods(ctx context.Context, c *cluster.Cluster, name string, replicas int32) error {
	template := name
	labels := map[string]string{"app": name}
	objects := []client.Object{
		&resourceapi.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
			Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
				Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.tessera.dev"}}},
			}}},
		},
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					// Spread, so that every node has a pod to evict.
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
					}},
					ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}},
					Containers: []corev1.Container{{
						Name: "probe", Image: cluster.ProbeImage, Command: []string{"probe", "--stay", "100000"},
						Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
					}},
				}},
			},
		},
	}
	for _, object := range objects {
		if err := c.Kinds.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the objects of Deployment %s: %w", name, err)
		}
	}
	fmt.Printf("Deployment %s: %d pods with one GPU each\n", name, replicas)
	late := fmt.Errorf("not all pods of Deployment %s are ready within %s; `kubectl describe pods` shows the reason", name, readyTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, late)
	defer cancel()
	err := cluster.Follow(ctx, c, &appsv1.DeploymentList{}, func(d *appsv1.Deployment, _ bool) bool {
		return d.Name == name && d.Status.ReadyReplicas == replicas
	})
	return cmp.Or(context.Cause(ctx), err)
}

// planUpgrade sets the new driver in the ClusterPolicy with the rollout paused, prints the plan and returns its last node.
func planUpgrade(ctx context.Context, c *cluster.Cluster) (last string, err error) {
	err = c.EditPolicy(ctx, func(policy *v1alpha1.ClusterPolicy) {
		metav1.SetMetaDataAnnotation(&policy.ObjectMeta, v1alpha1.AnnotationPause, "true")
		policy.Spec.Driver.Version = cluster.NewDriver
		one := int32(1)
		policy.Spec.Upgrade = v1alpha1.UpgradePolicy{
			Canary: new(intstr.FromInt32(1)), Soak: &metav1.Duration{Duration: 5 * time.Second}, MaxUnavailable: new(intstr.FromInt32(1)),
			FailureBudget: new(intstr.FromInt32(1)), Attempts: &one,
			Drain: v1alpha1.DrainSpec{Force: true}, // some pods of the examples keep running and have no controller
		}
	})
	if err != nil {
		return "", fmt.Errorf("set driver %s in the ClusterPolicy: %w", cluster.NewDriver, err)
	}
	fmt.Printf("\nkubectl edit gpupolicy default: spec.driver.version: %s -> %s\n", cluster.OldDriver, cluster.NewDriver)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no plan in the ClusterPolicy's status within 1m"))
	defer cancel()
	err = cluster.Follow(ctx, c, &v1alpha1.ClusterPolicyList{}, func(policy *v1alpha1.ClusterPolicy, _ bool) bool {
		plan := policy.Status.Plan
		if plan == nil || policy.Status.ObservedGeneration != policy.Generation || int(plan.Nodes) != len(managedNodes(c)) {
			return false
		}
		fmt.Printf("Plan: %d nodes get the new driver, %d pods lose their GPUs\n", plan.Nodes, plan.Pods)
		for i, wave := range plan.Waves {
			fmt.Printf("  wave %d: %s\n", i+1, strings.Join(wave.Nodes, ", "))
			last = wave.Nodes[len(wave.Nodes)-1]
		}
		return true
	})
	return last, cmp.Or(context.Cause(ctx), err)
}

// runRollout ends the pause and returns when the failing node is rolled back to the old driver and all others have the new one.
func runRollout(ctx context.Context, c *cluster.Cluster, failing string) error {
	err := c.EditPolicy(ctx, func(policy *v1alpha1.ClusterPolicy) { delete(policy.Annotations, v1alpha1.AnnotationPause) })
	if err != nil {
		return fmt.Errorf("end the pause of the upgrade: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, upgradeTimeout, fmt.Errorf("the upgrade is not complete within %s", upgradeTimeout))
	defer cancel()
	done := map[string]bool{}
	return cluster.Follow(ctx, c, &v1alpha1.GPUNodeList{}, func(node *v1alpha1.GPUNode, _ bool) bool {
		agent := node.Status.Agent
		phase, version := v1alpha1.PhaseReady, cluster.NewDriver
		if node.Name == failing {
			phase, version = v1alpha1.PhaseRolledBack, cluster.OldDriver
		}
		done[node.Name] = node.Status.Phase == phase && agent != nil && agent.DriverVersion == version
		for _, n := range managedNodes(c) {
			if !done[n.Name()] {
				return false
			}
		}
		return true
	})
}

// runKubectl runs kubectl for the cluster and prints the command and its output.
func runKubectl(ctx context.Context, c *cluster.Cluster, programs string, args ...string) error {
	fmt.Printf("\nkubectl %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
