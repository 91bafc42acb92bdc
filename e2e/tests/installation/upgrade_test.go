package installation

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

func upgrades() {
	It("A12, A13: drains pods that idle on a GPU or share a claim, swaps the driver, and all come back on the new one", func(ctx context.Context) {
		hasten(ctx)
		r := newRoom(ctx)
		r.claim(ctx, "gpu", wholeClass)
		r.claim(ctx, "shared", wholeClass)
		r.deploy(ctx, "idle", r.spec(hopper, "gpu"))
		r.deploy(ctx, "one", r.spec(ampere, "shared"))
		r.deploy(ctx, "other", r.spec(ampere, "shared"))
		r.deploy(ctx, "without", corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: hopper}, TerminationGracePeriodSeconds: new(int64(2)),
			Containers: []corev1.Container{{Name: "main", Image: cluster.ProbeImage, Command: []string{"sleep", "100000"}}},
		})
		before := map[string]*corev1.Pod{
			"idle": r.awaitRunning(ctx, "idle", hopper), "one": r.awaitRunning(ctx, "one", ampere), "other": r.awaitRunning(ctx, "other", ampere),
			"without": r.awaitRunning(ctx, "without", hopper),
		}
		began, published := time.Now(), followTaints(ctx)
		toDriver(ctx, cluster.NewDriver)
		allReady(ctx, cluster.NewDriver, bare()...)
		for app, old := range before {
			if app == "without" {
				Expect(r.awaitRunning(ctx, app, hopper).UID).To(Equal(old.UID), "a pod without a GPU was disturbed")
				continue
			}
			pod := r.awaitRunning(ctx, app, old.Spec.NodeName, string(old.UID))
			Eventually(ctx, func(ctx context.Context) (string, error) { return r.says(ctx, pod.Name) }).Should(ContainSubstring(`"uuid"`))
		}
		for _, name := range bare() {
			inOrder(ctx, func() []string { return log.since(name, began) }, "Taint", "StopAgent", "Remove", "Operate", "Start", "Validate", "Ready")
			Expect(hardware(name)).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"DriverLoaded": BeTrue(), "DriverVersion": Equal(cluster.NewDriver)}))
		}
		Eventually(ctx, r.leaving).Should(BeEmpty(), "pods that are stuck")
		Expect(taintedNodes(ctx)).To(BeEmpty())
		if lab.RunsOwnScheduler(c.Kubernetes()) {
			Expect(published()).To(BeEmpty(), "the taints are DeviceTaintRules")
		} else {
			Expect(published()).To(ConsistOf(bare()), "the agents publish the taints")
		}
	}, limit)

	It("A11: does not unload a driver below a pod that a disruption budget keeps, says so, and goes on once it may", func(ctx context.Context) {
		r := newRoom(ctx)
		r.claim(ctx, "gpu", wholeClass)
		r.deploy(ctx, "kept", r.spec(hopper, "gpu"))
		pod := r.awaitRunning(ctx, "kept", hopper)
		_, err := c.Client.PolicyV1().PodDisruptionBudgets(r.name).Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "kept"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		toDriver(ctx, cluster.OldDriver)
		Eventually(ctx, func(ctx context.Context) (string, error) { return where(ctx, hopper) }).
			Should(SatisfyAll(ContainSubstring("DrainBlocked"), ContainSubstring(pod.Name)))
		Expect(hardware(hopper)).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"DriverLoaded": BeTrue(), "DriverVersion": Equal(cluster.NewDriver)}))
		Expect(r.awaitRunning(ctx, "kept", hopper).UID).To(Equal(pod.UID))
		allReady(ctx, cluster.OldDriver, ampere, older)

		Expect(c.Client.PolicyV1().PodDisruptionBudgets(r.name).Delete(ctx, "kept", metav1.DeleteOptions{})).To(Succeed())
		stands(ctx, hopper, v1alpha1.PhaseReady, cluster.OldDriver)
		r.awaitRunning(ctx, "kept", hopper, string(pod.UID))
	}, limit)

	It("A9: finishes the others when a driver fails on one node, rolls that back, and tries it again", func(ctx context.Context) {
		Expect(c.BreakDriver(ampere, cluster.NewDriver, cluster.Fails)).To(Succeed())
		DeferCleanup(func() { Expect(c.BreakDriver(ampere, cluster.NewDriver, cluster.Works)).To(Succeed()) })
		toDriver(ctx, cluster.NewDriver)
		allReady(ctx, cluster.NewDriver, hopper, older)
		// Between its two attempts the node is rolled back only for a moment. A drain that a busy machine delays beyond its timeout counts too.
		Eventually(ctx, func(ctx context.Context) v1alpha1.GPUNodeStatus { return gpuNode(ctx, ampere).Status }).WithTimeout(2 * harness.Patience).
			Should(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
				"Phase":   Equal(v1alpha1.PhaseRolledBack),
				"Attempt": gstruct.PointTo(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Reason": Equal("DriverFailed"), "Count": BeNumerically(">=", 2)})),
			}))
		stands(ctx, ampere, v1alpha1.PhaseRolledBack, cluster.OldDriver)
		server := newServer(ctx)
		Expect(alerts(ctx, server)).To(Equal([]string{"TesseraNodesStuck"}))

		r := newRoom(ctx)
		r.claim(ctx, "gpu", wholeClass)
		r.deploy(ctx, "served", r.spec(ampere, "gpu"))
		r.awaitRunning(ctx, "served", ampere)

		Expect(c.BreakDriver(ampere, cluster.NewDriver, cluster.Works)).To(Succeed())
		resume(ctx)
		stands(ctx, ampere, v1alpha1.PhaseReady, cluster.NewDriver)
		Expect(alerts(ctx, server)).To(BeEmpty())
	}, limit)

	It("A3: takes precompiled drivers kernel by kernel; one that has no image leaves the others ready", func(ctx context.Context) {
		driver := &v1alpha1.NVIDIADriver{
			ObjectMeta: metav1.ObjectMeta{Name: "precompiled"},
			Spec: v1alpha1.NVIDIADriverSpec{
				DriverSpec: v1alpha1.DriverSpec{Version: "580", UsePrecompiled: true},
				NodeSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: []string{hopper, older}},
				}},
			},
		}
		Expect(c.Kinds.Create(ctx, driver)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(c.Kinds.Delete(ctx, driver)).To(Succeed())
			for _, name := range []string{hopper, older} {
				Eventually(ctx, func(ctx context.Context) (string, error) { return runs(ctx, name) }).
					Should(HavePrefix(cluster.DriverImage + ":" + cluster.NewDriver + "-"))
			}
			allReady(ctx, cluster.NewDriver, bare()...)
		})
		Eventually(ctx, func(ctx context.Context) (string, error) { return runs(ctx, hopper) }).
			Should(Equal(cluster.DriverImage + ":580-" + cluster.Kernel + "-" + cluster.Ubuntu24))
		Eventually(ctx, func(ctx context.Context) (string, error) { return where(ctx, older) }).
			Should(SatisfyAll(HavePrefix("RolledBack"), ContainSubstring("580-5.15.0-153-generic-ubuntu22.04")))
		allReady(ctx, cluster.NewDriver, hopper, ampere)
	}, limit)

	It("loads what stands beside the driver, and gives its device nodes to claims that ask", func(ctx context.Context) {
		for _, name := range bare() {
			connectNetwork(ctx, name)
		}
		edit(ctx, func(p *v1alpha1.ClusterPolicy) {
			p.Spec.Driver.GDRCopy.Enabled, p.Spec.Driver.GDS.Enabled, p.Spec.Driver.RDMA.Enabled = new(true), new(true), new(true)
		})
		for _, name := range bare() { // a node that has not started is still Ready with the same driver
			Eventually(ctx, func() ([]fakegpu.Module, error) { return fakegpu.Modules(node(name).GPUFolder()) }).
				Should(ContainElements(fakegpu.GDRCopy, fakegpu.GDS, fakegpu.Peermem), "modules of %s", name)
		}
		allReady(ctx, cluster.NewDriver, bare()...)
		r := newRoom(ctx)
		r.claim(ctx, "plain", wholeClass)
		r.claim(ctx, "asks", copyClass(ctx))
		for claim, want := range map[string]string{"plain": "none", "asks": "/dev/gdrdrv"} {
			spec := r.spec(hopper, claim)
			spec.Containers[0].Command = []string{"sh", "-c", "ls /dev/gdrdrv 2>/dev/null || echo none; probe --stay 100000"}
			r.deploy(ctx, claim, spec)
			pod := r.awaitRunning(ctx, claim, hopper)
			Eventually(ctx, func(ctx context.Context) (string, error) { return r.says(ctx, pod.Name) }).Should(HavePrefix(want + "\n"))
		}
	}, limit)
}

// copyClass creates a DeviceClass of whole GPUs with the nodes of GDRCopy until the spec ends, and returns its name.
func copyClass(ctx context.Context) string {
	GinkgoHelper()
	classes := c.Client.ResourceV1().DeviceClasses()
	class, err := classes.Get(ctx, wholeClass, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	class = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "copy.example.com"}, Spec: resourceapi.DeviceClassSpec{
		Selectors: class.Spec.Selectors,
		Config: []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"GPUConfig","devices":["gdrcopy"]}`),
			}},
		}}},
	}}
	_, err = classes.Create(ctx, class, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(classes.Delete(ctx, class.Name, metav1.DeleteOptions{})).To(Succeed())
	})
	return class.Name
}

// runs returns the image of the driver on a ready node.
func runs(ctx context.Context, name string) (string, error) {
	n, err := c.GPUNode(ctx, name)
	if err != nil || n.Status.Phase != v1alpha1.PhaseReady || n.Status.LastGoodDriver == nil {
		return "", err
	}
	return n.Status.LastGoodDriver.Image, nil
}

// resume ends the pause after failures.
func resume(ctx context.Context) {
	GinkgoHelper()
	edit(ctx, func(p *v1alpha1.ClusterPolicy) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationResume, "true")
	})
	DeferCleanup(func(ctx context.Context) {
		edit(ctx, func(p *v1alpha1.ClusterPolicy) { delete(p.Annotations, v1alpha1.AnnotationResume) })
	})
}

// connectNetwork gives a node a network adapter, whose driver a container has loaded: without one, nvidia_peermem is neither loaded nor needed.
func connectNetwork(ctx context.Context, name string) {
	GinkgoHelper()
	folder := filepath.Join(fakegpu.SysRoot(node(name).GPUFolder()), "bus/pci/devices/0000:5e:00.0")
	Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
	DeferCleanup(os.RemoveAll, folder)
	Expect(os.WriteFile(filepath.Join(folder, "vendor"), []byte("0x15b3\n"), 0o644)).To(Succeed())
	const ready = "/run/mellanox/drivers"
	output, err := node(name).Exec(ctx, "sh", "-c", "mkdir -p "+ready+" && touch "+ready+"/.driver-ready")
	Expect(err).NotTo(HaveOccurred(), "%s", output)
}
