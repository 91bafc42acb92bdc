package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
)

// upgradePatience is how long the upgrade may take.
const upgradePatience = 6 * time.Minute

// upgrade changes the driver of all nodes of the demo's cluster, which it brings up where there is none. On the last node of the plan
// the new driver does not load.
func upgrade(ctx context.Context, folder string) error {
	c, programs, err := enter(ctx, folder)
	if err != nil {
		return err
	}
	policy, err := c.Policy(ctx)
	if err != nil {
		return err
	}
	if policy.Spec.Driver.Version == cluster.NewDriver {
		return errors.New("this cluster has seen the upgrade: `make demo-down`, and once more")
	}
	if err := c.AwaitPolicy(ctx, readyPatience); err != nil {
		return err
	}
	if err := users(ctx, c); err != nil {
		return err
	}
	last, err := plan(ctx, c)
	if err != nil {
		return err
	}
	if err := c.BreakDriver(last, cluster.NewDriver, cluster.Fails); err != nil {
		return err
	}
	fmt.Printf("On %s, driver %s will not load. The upgrade begins.\n", last, cluster.NewDriver)
	if err := told(ctx, c, func(ctx context.Context) error { return rollOut(ctx, c, last) }); err != nil {
		return err
	}
	if err := show(ctx, c, programs, "get", "gpunodes"); err != nil {
		return err
	}
	printUse(c, programs)
	return nil
}

// users runs a Deployment with a GPU of its own for every pod.
func users(ctx context.Context, c *cluster.Cluster) error {
	return deploy(ctx, c, "users", int32(len(c.Nodes()))) //nolint:gosec // a lab has a few nodes
}

// deploy runs a Deployment with a GPU of its own for every pod, unless it runs already, and returns when all pods are ready.
func deploy(ctx context.Context, c *cluster.Cluster, name string, replicas int32) error {
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
					// Spread, so that every node has somebody to lose.
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
			return fmt.Errorf("run pods with GPUs: %w", err)
		}
	}
	fmt.Printf("Deployment %s: %d with a GPU each\n", name, replicas)
	ctx, cancel := context.WithTimeoutCause(ctx, readyPatience, fmt.Errorf("the pods of Deployment %s do not all run within %s: `kubectl describe pods` says why", name, readyPatience))
	defer cancel()
	err := cluster.Follow(ctx, c, &appsv1.DeploymentList{}, func(d *appsv1.Deployment, _ bool) bool {
		return d.Name == name && d.Status.ReadyReplicas == replicas
	})
	return cmp.Or(context.Cause(ctx), err)
}

// plan asks for the new driver with the rollout paused, prints what will happen, and returns the node that comes last.
func plan(ctx context.Context, c *cluster.Cluster) (last string, err error) {
	err = c.EditPolicy(ctx, func(policy *v1alpha1.ClusterPolicy) {
		metav1.SetMetaDataAnnotation(&policy.ObjectMeta, v1alpha1.AnnotationPause, "true")
		policy.Spec.Driver.Version = cluster.NewDriver
		one := int32(1)
		policy.Spec.Upgrade = v1alpha1.UpgradePolicy{
			Canary: new(intstr.FromInt32(1)), Soak: &metav1.Duration{Duration: 5 * time.Second}, MaxUnavailable: new(intstr.FromInt32(1)),
			FailureBudget: new(intstr.FromInt32(1)), Attempts: &one,
			Drain: v1alpha1.DrainSpec{Force: true}, // some pods of the examples stay, and have no controller
		}
	})
	if err != nil {
		return "", fmt.Errorf("ask for driver %s: %w", cluster.NewDriver, err)
	}
	fmt.Printf("\nkubectl edit gpupolicy default: spec.driver.version: %s -> %s\n", cluster.OldDriver, cluster.NewDriver)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no plan appears in the ClusterPolicy's status"))
	defer cancel()
	err = cluster.Follow(ctx, c, &v1alpha1.ClusterPolicyList{}, func(policy *v1alpha1.ClusterPolicy, _ bool) bool {
		plan := policy.Status.Plan
		if plan == nil || policy.Status.ObservedGeneration != policy.Generation || int(plan.Nodes) != len(c.Nodes()) {
			return false
		}
		fmt.Printf("The plan: %d nodes change their driver, %d pods lose their GPUs for a while\n", plan.Nodes, plan.Pods)
		for i, wave := range plan.Waves {
			fmt.Printf("  wave %d: %s\n", i+1, strings.Join(wave.Nodes, ", "))
			last = wave.Nodes[len(wave.Nodes)-1]
		}
		return true
	})
	return last, err
}

// rollOut ends the pause and returns when every node but the failing one has the new driver, and that one has the old one again.
func rollOut(ctx context.Context, c *cluster.Cluster, failing string) error {
	err := c.EditPolicy(ctx, func(policy *v1alpha1.ClusterPolicy) { delete(policy.Annotations, v1alpha1.AnnotationPause) })
	if err != nil {
		return fmt.Errorf("begin the upgrade: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, upgradePatience, errors.New("the upgrade takes too long"))
	defer cancel()
	arrived := map[string]bool{}
	return cluster.Follow(ctx, c, &v1alpha1.GPUNodeList{}, func(node *v1alpha1.GPUNode, _ bool) bool {
		agent := node.Status.Agent
		phase, version := v1alpha1.PhaseReady, cluster.NewDriver
		if node.Name == failing {
			phase, version = v1alpha1.PhaseRolledBack, cluster.OldDriver
		}
		arrived[node.Name] = node.Status.Phase == phase && agent != nil && agent.DriverVersion == version
		for _, n := range c.Nodes() {
			if !arrived[n.Name()] {
				return false
			}
		}
		return true
	})
}

// show prints what kubectl prints.
func show(ctx context.Context, c *cluster.Cluster, programs string, args ...string) error {
	fmt.Printf("\nkubectl %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
