package installation

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// The control plane is upgraded first, as Kubernetes requires: meanwhile the kubelet of 1.36 runs below the API server of 1.37.
var _ = Describe("An upgrade of Kubernetes", Ordered, func() {
	start("installation-kubernetes", cluster.BareNodes()[:1])
	var r room
	var kept *corev1.Pod

	BeforeAll(func(ctx context.Context) {
		Expect(c.InstallChart(ctx, nil)).To(Succeed())
		allReady(ctx, cluster.OldDriver, hopper)
		Expect(reduced(ctx)).To(ContainSubstring("tessera-scheduler does not run"))
		r = newRoom(ctx)
		r.claim(ctx, "kept", wholeClass)
		r.deploy(ctx, "kept", r.spec(hopper, "kept"))
		kept = r.awaitRunning(ctx, "kept", hopper)
	}, limit)

	It("keeps running pods while the control plane changes, and the older kubelet prepares claims", func(ctx context.Context) {
		Expect(c.Upgrade(ctx, binaries.Kubernetes137)).To(Succeed())
		version, err := c.Client.Discovery().ServerVersion()
		Expect(err).NotTo(HaveOccurred())
		Expect(version.GitVersion).To(HavePrefix("v" + binaries.Kubernetes137))
		for _, class := range []string{wholeClass, migClass} {
			name := "skew-" + strings.SplitN(class, ".", 2)[0]
			r.claim(ctx, name, class)
			r.deploy(ctx, name, r.spec(hopper, name))
			r.awaitRunning(ctx, name, hopper)
		}
		Expect(kubelet(ctx)).To(HavePrefix("v" + binaries.Kubernetes136))
		unchanged(ctx, r, kept)
		stands(ctx, hopper, v1alpha1.PhaseReady, cluster.OldDriver)
	}, limit)

	It("gets tessera-scheduler with the next upgrade of the chart", func(ctx context.Context) {
		Expect(c.InstallChart(ctx, nil)).To(Succeed())
		// As docs/install.md requires, since the installer detects the kinds at its start.
		pods := c.Client.CoreV1().Pods(cluster.Namespace)
		ofInstaller := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=tessera-installer"}
		Expect(pods.DeleteCollection(ctx, metav1.DeleteOptions{}, ofInstaller)).To(Succeed())
		Eventually(ctx, reduced).Should(BeEmpty())
		Eventually(ctx, assigned).Should(BeTrue())
		r.claim(ctx, "placed", wholeClass)
		r.deploy(ctx, "placed", r.spec(hopper, "placed"))
		Expect(r.awaitRunning(ctx, "placed", hopper).Spec.SchedulerName).To(Equal(cluster.SchedulerName))
		unchanged(ctx, r, kept)
	}, limit)

	It("runs the pods again after the node's upgrade", func(ctx context.Context) {
		Expect(node(hopper).Upgrade(ctx)).To(Succeed())
		Expect(kubelet(ctx)).To(HavePrefix("v" + binaries.Kubernetes137))
		stands(ctx, hopper, v1alpha1.PhaseReady, cluster.OldDriver)
		for _, app := range []string{"kept", "skew-gpu", "skew-mig", "placed"} {
			r.awaitRunning(ctx, app, hopper)
		}
	}, limit)
})

// reduced returns what the installer reports as reduced; nothing if all functions are available.
func reduced(ctx context.Context) (string, error) {
	policy, err := c.Policy(ctx)
	if err != nil {
		return "", err
	}
	if condition := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReduced); condition != nil {
		return condition.Message, nil
	}
	return "", nil
}

// kubelet returns the version of the node's kubelet.
func kubelet(ctx context.Context) string {
	GinkgoHelper()
	n, err := c.Client.CoreV1().Nodes().Get(ctx, hopper, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return n.Status.NodeInfo.KubeletVersion
}

// unchanged checks that the containers of a pod are those from before.
func unchanged(ctx context.Context, r room, before *corev1.Pod) {
	GinkgoHelper()
	now, err := c.Client.CoreV1().Pods(r.name).Get(ctx, before.Name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(now.UID).To(Equal(before.UID))
	Expect(now.Status.ContainerStatuses[0].ContainerID).To(Equal(before.Status.ContainerStatuses[0].ContainerID))
	Expect(now.Status.ContainerStatuses[0].RestartCount).To(BeZero())
}
