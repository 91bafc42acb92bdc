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

// The XID of the story: a memory error that may have reached every program, which a reset of the GPU ends. healthPatience is how long it
// may take from there to the return.
const (
	storyXID       = 95
	healthPatience = 3 * time.Minute
)

// patientName is the Deployment whose pod has the GPU that falls ill.
const patientName = "patient"

// health has a GPU fall ill under a pod of the demo's cluster, which it brings up where there is none, and tells what becomes of both. A node whose upgrade
// was rolled back is in nobody's way.
func health(ctx context.Context, folder string) error {
	c, programs, err := enter(ctx, folder)
	if err != nil {
		return err
	}
	if err := remediate(ctx, c, v1alpha1.RemediationSuggest); err != nil {
		return err
	}
	if err := deploy(ctx, c, patientName, 1); err != nil {
		return err
	}
	s, err := admit(ctx, c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, healthPatience, fmt.Errorf("it takes longer than %s", healthPatience))
	defer cancel()
	if err := course(ctx, c, s); err != nil {
		return err
	}
	printUse(c, programs)
	return nil
}

// remediate says in the ClusterPolicy how far the installer may go.
func remediate(ctx context.Context, c *cluster.Cluster, mode v1alpha1.RemediationMode) error {
	err := c.EditPolicy(ctx, func(p *v1alpha1.ClusterPolicy) { p.Spec.Remediation.Mode = mode })
	if err != nil {
		return fmt.Errorf("set the mode of remediation: %w", err)
	}
	return nil
}

// admit finds the pod and the GPU that it has.
func admit(ctx context.Context, c *cluster.Cluster) (*sickbed, error) {
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + patientName})
	if err != nil {
		return nil, fmt.Errorf("find the pod of %s: %w", patientName, err)
	}
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning })
	if i < 0 {
		return nil, fmt.Errorf("find the pod of %s: none runs", patientName)
	}
	pod := &pods.Items[i]
	g, claim, err := gpuOf(ctx, c, pod)
	if err != nil {
		return nil, err
	}
	node, err := c.GPUNode(ctx, pod.Spec.NodeName)
	if err != nil {
		return nil, fmt.Errorf("read the GPUNode of %s: %w", pod.Spec.NodeName, err)
	}
	s := &sickbed{out: os.Stdout, now: time.Now, node: pod.Spec.NodeName, gpu: g.Name, uuid: g.GPU.UUID, app: patientName, pod: pod.UID, claim: claim}
	for _, r := range node.Status.History {
		s.known = append(s.known, r.ID)
	}
	fmt.Printf("\npod %s runs on %s with GPU %d (%s, %s)\n", pod.Name, pod.Spec.NodeName, g.GPU.Index, g.Name, g.GPU.UUID)
	return s, nil
}

// gpuOf returns the GPU that a pod has, with the name of its claim.
func gpuOf(ctx context.Context, c *cluster.Cluster, pod *corev1.Pod) (g wire.PublishedGPU, claim string, err error) {
	names := clicluster.ClaimNames(*pod)
	if len(names) != 1 {
		return g, "", fmt.Errorf("find the GPU of pod %s: it has the claims %q", pod.Name, names)
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
		return g, "", fmt.Errorf("find the GPU of pod %s: claim %s has none", pod.Name, found.Name)
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
	return g, "", fmt.Errorf("find the GPU of pod %s: nobody publishes the devices of claim %s", pod.Name, found.Name)
}

// course has the GPU fall ill and follows it until it is back.
func course(ctx context.Context, c *cluster.Cluster, s *sickbed) (err error) {
	node, err := c.Node(s.node)
	if err != nil {
		return err
	}
	index, resets, err := hardwareOf(node, s.uuid)
	if err != nil {
		return err
	}
	watching, enough := context.WithCancel(ctx)
	ended := make(chan error, 1)
	fmt.Printf("XID %d is injected into %s of %s\n", storyXID, s.gpu, s.node)
	s.begin()
	go func() { ended <- s.watch(watching, c) }()
	defer func() {
		enough()
		err = errors.Join(err, <-ended)
	}()
	if err := fakegpu.XID(node.GPUFolder(), fakegpu.On(index), storyXID); err != nil {
		return fmt.Errorf("inject XID %d: %w", storyXID, err)
	}
	if err := s.await(ctx, partTaint, partStatus, partClaim, part(v1alpha1.RemediationStepSuggested)); err != nil {
		return err
	}
	if err := visit(ctx, c, s.node, sick); err != nil {
		return err
	}
	fmt.Printf("\nkubectl edit gpupolicy default: spec.remediation.mode: %s -> %s\n", v1alpha1.RemediationSuggest, v1alpha1.RemediationAct)
	if err := remediate(ctx, c, v1alpha1.RemediationAct); err != nil {
		return err
	}
	if err := s.await(ctx, partEvicted, partReplaced, part(v1alpha1.RemediationStepHold), part(v1alpha1.RemediationStepDrain), part(v1alpha1.RemediationStepReset),
		part(v1alpha1.RemediationStepValidate), part(v1alpha1.RemediationStepRestore), partFree, partRecord); err != nil {
		return err
	}
	if err := s.prove(ctx, c, node, resets); err != nil {
		return err
	}
	return visit(ctx, c, s.node, well)
}

// prove checks that the replacement has another GPU and that the sick one was reset once.
func (s *sickbed) prove(ctx context.Context, c *cluster.Cluster, node *lab.Node, before int) error {
	g, _, err := gpuOf(ctx, c, s.replacement)
	if err != nil {
		return err
	}
	if g.Name == s.gpu && s.replacement.Spec.NodeName == s.node {
		return fmt.Errorf("pod %s has the GPU that fell ill: no other was free", s.replacement.Name)
	}
	_, resets, err := hardwareOf(node, s.uuid)
	if err != nil {
		return err
	}
	if resets != before+1 {
		return fmt.Errorf("%s of %s was reset %d times, not once", s.gpu, s.node, resets-before)
	}
	fmt.Printf("\npod %s has GPU %d (%s) of %s, which is well; %s was reset once and is back after %.0f s\n", s.replacement.Name, g.GPU.Index, g.Name,
		s.replacement.Spec.NodeName, s.gpu, time.Since(s.began).Seconds())
	return nil
}

// hardwareOf returns the index of a GPU in the hardware of a node, and how often it was reset.
func hardwareOf(node *lab.Node, uuid string) (index, resets int, err error) {
	state, err := fakegpu.Read(node.GPUFolder())
	if err != nil {
		return 0, 0, fmt.Errorf("read the hardware of %s: %w", node.Name(), err)
	}
	for i, g := range state.GPUs {
		if g.UUID == uuid {
			return i, g.Resets, nil
		}
	}
	return 0, 0, fmt.Errorf("find %s in the hardware of %s: it has %d others", uuid, node.Name(), len(state.GPUs))
}

// diagnosis is what the doctor must say.
type diagnosis int

const (
	well diagnosis = iota
	sick
)

// visit prints what `tessera doctor` says of a node, and holds it to the diagnosis.
func visit(ctx context.Context, c *cluster.Cluster, node string, must diagnosis) error {
	fmt.Printf("\ntessera doctor %s\n", node)
	flags := clicluster.Flags{Kubeconfig: c.Kubeconfig(), Drivers: []string{v1alpha1.DriverName}}
	cmd := doctor.Command(&flags) //nolint:contextcheck // it has the context that it is executed with
	cmd.SetArgs([]string{node})
	cmd.SetOut(os.Stdout)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(ctx)
	fmt.Printf("exit status %d\n", output.Status(err))
	if status := output.Status(err); status != int(must) {
		return fmt.Errorf("tessera doctor %s ended with %d, not %d: %w", node, status, must, err)
	}
	return nil
}
