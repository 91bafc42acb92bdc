package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/tests/predict"
)

// decision is a choice of the scheduler with its prediction.
type decision struct {
	request string
	// nodes are in the cluster's order; predicted is the result of fit for each.
	nodes     []string
	predicted map[string]predict.Answer
	// node and devices are the pod's node and its allocated devices.
	node    string
	devices []string
}

// predictDecision computes the choice for a claim of one MIG device on every node, then lets the scheduler place a pod with the claim.
func predictDecision(ctx context.Context, c *cluster.Cluster) (decision, error) {
	const name = "decision"
	claim, err := c.Client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "slice", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "mig-1g.10gb.tessera.dev"}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return decision{}, fmt.Errorf("create the claim of the decision: %w", err)
	}
	d := decision{request: "1 × mig-1g.10gb.tessera.dev", predicted: map[string]predict.Answer{}}
	before, err := predict.Read(ctx, c.Client, v1alpha1.DriverName)
	if err != nil {
		return decision{}, err
	}
	for _, node := range c.Nodes() {
		answer, err := before.On(node.Name(), claim) //nolint:contextcheck // selectors are evaluated in memory
		if err != nil {
			return decision{}, err
		}
		d.nodes = append(d.nodes, node.Name())
		d.predicted[node.Name()] = answer
	}
	return d, d.schedulePod(ctx, c, claim)
}

// schedulePod creates a pod with the claim and reads its node and devices once it is scheduled.
func (d *decision) schedulePod(ctx context.Context, c *cluster.Cluster, claim *resourceapi.ResourceClaim) error {
	pods := c.Client.CoreV1().Pods(claim.Namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name},
		Spec: corev1.PodSpec{
			RestartPolicy:  corev1.RestartPolicyNever,
			ResourceClaims: []corev1.PodResourceClaim{{Name: "slice", ResourceClaimName: &claim.Name}},
			Containers: []corev1.Container{{
				Name: "probe", Image: cluster.ProbeImage, Command: []string{"probe"},
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "slice"}}},
			}},
		},
	}
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the pod of the decision: %w", err)
	}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		placed, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil {
			d.node = placed.Spec.NodeName
		}
		return d.node != "", err
	})
	if err != nil {
		return fmt.Errorf("wait until pod %s is scheduled: %w", pod.Name, err)
	}
	claim, err = c.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the allocation of the decision: %w", err)
	}
	if claim.Status.Allocation != nil {
		for _, result := range claim.Status.Allocation.Devices.Results {
			d.devices = append(d.devices, result.Device)
		}
	}
	return nil
}

// print writes the prediction for every node and the scheduler's choice.
func (d *decision) print(w io.Writer) {
	var text strings.Builder
	fmt.Fprintf(&text, "\nA scheduling decision, predicted before the pod is created\n  requests  %s\n", d.request)
	for _, node := range d.nodes {
		fmt.Fprintf(&text, "  %s  %s\n", node, d.predicted[node].Text)
	}
	verdict := "as predicted"
	if p := d.predicted[d.node]; strings.Join(p.Devices, " ") != strings.Join(d.devices, " ") {
		verdict = "not as predicted: allocations changed in between"
	}
	fmt.Fprintf(&text, "  chosen  %s: %s, %s\n", d.node, strings.Join(d.devices, ", "), verdict)
	fmt.Fprint(w, text.String()) //nolint:errcheck // standard output
}
