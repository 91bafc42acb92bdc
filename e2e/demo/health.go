package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	clicluster "github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/doctor"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

const (
	// injectedXID is an uncontained memory error, which a reset of the GPU clears.
	injectedXID = 95
	// recoveryTimeout is the time limit from the fault to the GPU's return to service.
	recoveryTimeout = 3 * time.Minute
	// healthDeployment is the Deployment whose pod has the faulted GPU.
	healthDeployment = "health-workload"
)

// health injects a fault into a GPU in use and prints the effects and the remediation. It uses the demo's cluster and starts one if there
// is none. Nodes may be RolledBack from `demo upgrade`.
func health(ctx context.Context, folder string) error {
	c, programs, err := openCluster(ctx, folder)
	if err != nil {
		return err
	}
	if err := setRemediationMode(ctx, c, v1alpha1.RemediationSuggest); err != nil {
		return err
	}
	if err := deployPods(ctx, c, healthDeployment, 1); err != nil {
		return err
	}
	t, err := findPod(ctx, c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, recoveryTimeout, fmt.Errorf("the GPU is not back in service within %s", recoveryTimeout))
	defer cancel()
	if err := injectFault(ctx, c, t); err != nil {
		return err
	}
	printUse(environment(c, programs), []string{showNodes})
	return nil
}

// setRemediationMode sets the mode of remediation in the ClusterPolicy.
func setRemediationMode(ctx context.Context, c *cluster.Cluster, mode v1alpha1.RemediationMode) error {
	err := c.EditPolicy(ctx, func(p *v1alpha1.ClusterPolicy) { p.Spec.Remediation.Mode = mode })
	if err != nil {
		return fmt.Errorf("set the mode of remediation: %w", err)
	}
	return nil
}

// findPod returns the trace of the Deployment's pod and its GPU.
func findPod(ctx context.Context, c *cluster.Cluster) (*faultTrace, error) {
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + healthDeployment})
	if err != nil {
		return nil, fmt.Errorf("find the pod of %s: %w", healthDeployment, err)
	}
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning })
	if i < 0 {
		return nil, fmt.Errorf("find the pod of %s: no pod is running", healthDeployment)
	}
	pod := &pods.Items[i]
	g, claim, err := allocatedGPU(ctx, c, pod)
	if err != nil {
		return nil, err
	}
	node, err := c.GPUNode(ctx, pod.Spec.NodeName)
	if err != nil {
		return nil, fmt.Errorf("read the GPUNode of %s: %w", pod.Spec.NodeName, err)
	}
	t := &faultTrace{out: os.Stdout, now: time.Now, node: pod.Spec.NodeName, gpu: g.Name, uuid: g.GPU.UUID, app: healthDeployment, pod: pod.UID, claim: claim}
	for _, r := range node.Status.History {
		t.earlier = append(t.earlier, r.ID)
	}
	fmt.Printf("\npod %s is running on %s with GPU %d (%s, %s)\n", pod.Name, pod.Spec.NodeName, g.GPU.Index, g.Name, g.GPU.UUID)
	return t, nil
}

// allocatedGPU returns the GPU allocated to a pod and the name of the pod's claim.
func allocatedGPU(ctx context.Context, c *cluster.Cluster, pod *corev1.Pod) (g wire.PublishedGPU, claim string, err error) {
	names := clicluster.ClaimNames(*pod)
	if len(names) != 1 {
		return g, "", fmt.Errorf("find the GPU of pod %s: expected one claim, it has %q", pod.Name, names)
	}
	found, err := c.Client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, names[0], metav1.GetOptions{})
	if err != nil {
		return g, "", fmt.Errorf("find the GPU of pod %s: %w", pod.Name, err)
	}
	list, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return g, "", fmt.Errorf("find the GPU of pod %s: %w", pod.Name, err)
	}
	if found.Status.Allocation == nil {
		return g, "", fmt.Errorf("find the GPU of pod %s: claim %s is not allocated", pod.Name, found.Name)
	}
	for _, r := range wire.Read(list.Items) {
		for _, result := range found.Status.Allocation.Devices.Results {
			if result.Driver != r.Driver || result.Pool != r.Pool {
				continue
			}
			g, _, err := r.Find(result.Device)
			return g, found.Name, err
		}
	}
	return g, "", fmt.Errorf("find the GPU of pod %s: the devices of claim %s are in no ResourceSlice", pod.Name, found.Name)
}

// injectFault injects the XID, enables remediation once the fault is reported, and returns when the GPU is back in service.
func injectFault(ctx context.Context, c *cluster.Cluster, t *faultTrace) (err error) {
	node, err := c.Node(t.node)
	if err != nil {
		return err
	}
	index, resets, err := findHardware(node, t.uuid)
	if err != nil {
		return err
	}
	following, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	fmt.Printf("Injecting XID %d into %s of %s\n", injectedXID, t.gpu, t.node)
	t.begin()
	go func() { ended <- t.follow(following, c) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	if err := fakegpu.XID(node.GPUFolder(), fakegpu.On(index), injectedXID); err != nil {
		return fmt.Errorf("inject XID %d: %w", injectedXID, err)
	}
	if err := t.await(ctx, gpuTainted, podUnhealthy, claimUnhealthy, milestone(v1alpha1.RemediationStepSuggested)); err != nil {
		return err
	}
	if err := runDoctor(ctx, c, t.node, faulted); err != nil {
		return err
	}
	fmt.Printf("\nkubectl edit gpupolicy default: spec.remediation.mode: %s -> %s\n", v1alpha1.RemediationSuggest, v1alpha1.RemediationAct)
	if err := setRemediationMode(ctx, c, v1alpha1.RemediationAct); err != nil {
		return err
	}
	milestones := []milestone{podEvicted, podReplaced, gpuUntainted, historyRecorded}
	for _, step := range []v1alpha1.RemediationStep{v1alpha1.RemediationStepHold, v1alpha1.RemediationStepDrain, v1alpha1.RemediationStepReset,
		v1alpha1.RemediationStepValidate, v1alpha1.RemediationStepRestore} {
		milestones = append(milestones, milestone(step))
	}
	if err := t.await(ctx, milestones...); err != nil {
		return err
	}
	if err := t.verifyRecovery(ctx, c, node, resets); err != nil {
		return err
	}
	return runDoctor(ctx, c, t.node, healthy)
}

// verifyRecovery checks that the replacement pod has another GPU and that the faulted one was reset once.
func (t *faultTrace) verifyRecovery(ctx context.Context, c *cluster.Cluster, node *lab.Node, before int) error {
	g, _, err := allocatedGPU(ctx, c, t.replacement)
	if err != nil {
		return err
	}
	if g.Name == t.gpu && t.replacement.Spec.NodeName == t.node {
		return fmt.Errorf("pod %s has the faulted GPU: no other GPU was free", t.replacement.Name)
	}
	_, resets, err := findHardware(node, t.uuid)
	if err != nil {
		return err
	}
	if resets != before+1 {
		return fmt.Errorf("%s of %s was reset %d times, not once", t.gpu, t.node, resets-before)
	}
	fmt.Printf("\npod %s has the healthy GPU %d (%s) of %s; %s was reset once and is back in service after %.0f s\n", t.replacement.Name, g.GPU.Index, g.Name,
		t.replacement.Spec.NodeName, t.gpu, time.Since(t.began).Seconds())
	return nil
}

// findHardware returns a GPU's index in the fake hardware of a node, and the number of its resets.
func findHardware(node *lab.Node, uuid string) (index, resets int, err error) {
	state, err := fakegpu.Read(node.GPUFolder())
	if err != nil {
		return 0, 0, fmt.Errorf("read the hardware of %s: %w", node.Name(), err)
	}
	for i, g := range state.GPUs {
		if g.UUID == uuid {
			return i, g.Resets, nil
		}
	}
	return 0, 0, fmt.Errorf("find %s in the hardware of %s: not among its %d GPUs", uuid, node.Name(), len(state.GPUs))
}

// diagnosis is an exit status of `tessera doctor`.
type diagnosis int

const (
	healthy diagnosis = iota
	faulted
)

// runDoctor prints the output of `tessera doctor` for a node, and returns an error if the exit status differs from the expected one.
func runDoctor(ctx context.Context, c *cluster.Cluster, node string, want diagnosis) error {
	fmt.Printf("\ntessera doctor %s\n", node)
	flags := clicluster.NewFlags()
	*flags.KubeConfig, flags.Drivers = c.Kubeconfig(), []string{v1alpha1.DriverName}
	cmd := doctor.Command(flags) //nolint:contextcheck // ExecuteContext passes ctx
	cmd.SetArgs([]string{node})
	cmd.SetOut(os.Stdout)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(ctx)
	fmt.Printf("exit status %d\n", output.Status(err))
	if status := output.Status(err); status != int(want) {
		return fmt.Errorf("tessera doctor %s: exit status %d, expected %d: %w", node, status, want, err)
	}
	return nil
}
