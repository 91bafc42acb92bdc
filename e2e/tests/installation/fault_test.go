package installation

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

func suffers() {
	It("A14: brings a node back that was rebooted under prepared claims, and asks for the reboot that a GPU needs which fell off the bus", func(ctx context.Context) {
		act(ctx, 1)
		r := newRoom(ctx)
		r.claim(ctx, "gpu", wholeClass)
		r.deploy(ctx, "survivor", r.spec(older, "gpu"))
		r.awaitRunning(ctx, "survivor", older)
		boot := gpuNode(ctx, older).Status.Validated.BootID
		used := r.gpuOf(ctx, older, r.awaitRunning(ctx, "survivor", older).Name)
		other := (used + 1) % len(hardware(older).GPUs)
		Expect(fakegpu.Lose(node(older).GPUFolder(), other)).To(Succeed())
		Eventually(ctx, func(ctx context.Context) (bool, error) { return rebootWanted(ctx, older) }).Should(BeTrue())
		Expect(node(older).Kill(ctx)).To(Succeed())
		Expect(node(older).Start(ctx)).To(Succeed())
		Eventually(ctx, func(ctx context.Context) (string, error) {
			n, err := c.GPUNode(ctx, older)
			if err != nil || n.Status.Validated == nil {
				return boot, err
			}
			return n.Status.Validated.BootID, nil
		}).ShouldNot(Equal(boot), "a validation holds for one boot")
		stands(ctx, older, v1alpha1.PhaseReady, cluster.NewDriver)
		r.awaitRunning(ctx, "survivor", older)
		Eventually(ctx, func(ctx context.Context) (bool, error) { return rebootWanted(ctx, older) }).Should(BeFalse())
		recovered(ctx, older, other)
	}, limit)

	It("A6: goes on where it was when it is killed at every step of an upgrade", Label("long"), func(ctx context.Context) {
		upgraded(ctx)
		r := newRoom(ctx)
		r.claim(ctx, "gpu", wholeClass)
		r.deploy(ctx, "user", r.spec(older, "gpu"))
		r.awaitRunning(ctx, "user", older)
		began := time.Now()
		toDriver(ctx, cluster.OldDriver)
		killed := map[string]bool{}
		Eventually(ctx, func(ctx context.Context) (string, error) {
			n, err := c.GPUNode(ctx, older)
			if err != nil {
				return "", err
			}
			if step := string(n.Status.Step); step != "" && !killed[step] {
				killed[step] = true
				killInstaller(ctx)
			}
			return where(ctx, older)
		}).WithTimeout(2 * harness.Patience).Should(HavePrefix("Ready, " + cluster.OldDriver))
		inOrder(ctx, func() []string { return log.since(older, began) }, "Taint", "Remove", "Operate", "Validate", "Ready")
		Expect(len(killed)).To(BeNumerically(">=", 4), "it was killed at %v", killed)
		allReady(ctx, cluster.OldDriver, bare()...)
		r.awaitRunning(ctx, "user", older)
		upgraded(ctx)
	}, limit)

	It("finishes an upgrade over which the API server goes away and a node reboots", Label("long"), func(ctx context.Context) {
		upgraded(ctx)
		toDriver(ctx, cluster.OldDriver)
		Eventually(ctx, func(ctx context.Context) (v1alpha1.UpgradeStep, error) {
			n, err := c.GPUNode(ctx, hopper)
			return n.Status.Step, err
		}).ShouldNot(BeEmpty())
		Expect(c.ControlPlane().StopService(ctx, lab.APIServer)).To(Succeed())
		Expect(node(older).Kill(ctx)).To(Succeed())
		Consistently(ctx, func() bool { return true }).WithTimeout(time.Minute).WithPolling(time.Second).Should(BeTrue())
		Expect(c.ControlPlane().StartService(ctx, lab.APIServer)).To(Succeed())
		Expect(node(older).Start(ctx)).To(Succeed())
		allReady(ctx, cluster.OldDriver, bare()...)
		upgraded(ctx)
	}, limit)
}

// upgraded upgrades all nodes to the newer driver, if necessary: the following specs downgrade to the older one.
func upgraded(ctx context.Context) {
	GinkgoHelper()
	toDriver(ctx, cluster.NewDriver)
	allReady(ctx, cluster.NewDriver, bare()...)
}

// killInstaller deletes the installer's pod without a grace period. Its replacement is started.
func killInstaller(ctx context.Context) {
	GinkgoHelper()
	pods, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=tessera-installer"})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		Expect(c.Client.CoreV1().Pods(cluster.Namespace).Delete(ctx, pod.Name, now)).To(Succeed())
	}
}

// installerReady reports whether an installer is ready and none is terminating.
func installerReady(ctx context.Context) (bool, error) {
	pods, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=tessera-installer"})
	if err != nil || len(pods.Items) == 0 {
		return false, err
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil || len(pod.Status.ContainerStatuses) == 0 || !pod.Status.ContainerStatuses[0].Ready {
			return false, nil
		}
	}
	return true, nil
}
