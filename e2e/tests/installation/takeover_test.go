package installation

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// takesOver covers nodes that are migrated to Tessera from other software.
func takesOver() {
	It("A5: keeps a good driver of the host and installs none", func(ctx context.Context) {
		Expect(c.InstallHostDriver(ctx, hosted, cluster.OldDriver)).To(Succeed())
		choose(ctx, hosted)
		stands(ctx, hosted, v1alpha1.PhaseReady, cluster.OldDriver)
		Expect(gpuNode(ctx, hosted).Spec.Driver).To(gstruct.PointTo(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Source": Equal(v1alpha1.DriverHost)})))
		Expect(operand(ctx, "tessera-driver", hosted)).To(BeEmpty())
		served(ctx, hosted)
	}, limit)

	It("A17: has containerd 1.7 read CDI specs, repairs what somebody overwrites, and restarts it only for a change", func(ctx context.Context) {
		choose(ctx, legacy)
		stands(ctx, legacy, v1alpha1.PhaseReady, cluster.NewDriver)
		served(ctx, legacy)
		running := runtimeOf(ctx, legacy)

		By("somebody writes the same again")
		run(ctx, legacy, "cp /etc/containerd/config.toml /tmp/now && cp /tmp/now /etc/containerd/config.toml")
		By("somebody overwrites the configuration with one that knows nothing of us")
		run(ctx, legacy, "grep -v -e imports -e Tessera /etc/containerd/config.toml > /tmp/other && cp /tmp/other /etc/containerd/config.toml")
		Eventually(ctx, func(ctx context.Context) string { return run(ctx, legacy, "cat /etc/containerd/config.toml") }).Should(ContainSubstring("99-tessera-"))
		Expect(runtimeOf(ctx, legacy)).To(Equal(running), "it was restarted although it reads CDI specs already")
		served(ctx, legacy)
	}, limit)

	It("A22: takes a pool over from a classic device plugin, with workloads running elsewhere", func(ctx context.Context) {
		elsewhere := newRoom(ctx)
		elsewhere.claim(ctx, "gpu", wholeClass)
		elsewhere.deploy(ctx, "elsewhere", elsewhere.spec(hopper, "gpu"))
		steady := elsewhere.awaitRunning(ctx, "elsewhere", hopper)

		r := newRoom(ctx)
		r.deploy(ctx, "plugin", corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: classic}, TerminationGracePeriodSeconds: new(int64(2)),
			Containers: []corev1.Container{{
				Name: "plugin", Image: cluster.PluginImage, Env: []corev1.EnvVar{{Name: "GPUS", Value: "1"}},
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
				VolumeMounts:    []corev1.VolumeMount{{Name: "plugins", MountPath: "/var/lib/kubelet/device-plugins"}},
			}},
			Volumes: []corev1.Volume{{Name: "plugins", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/device-plugins"}}}},
		})
		r.awaitRunning(ctx, "plugin", classic)
		one := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
		r.deploy(ctx, "old", corev1.PodSpec{
			// On other nodes, Tessera serves pods with this request.
			NodeSelector: map[string]string{corev1.LabelHostname: classic}, TerminationGracePeriodSeconds: new(int64(2)),
			Containers: []corev1.Container{{
				Name: "main", Image: cluster.ProbeImage, Command: []string{"sleep", "100000"}, Resources: corev1.ResourceRequirements{Limits: one},
			}},
		})
		old := r.awaitRunning(ctx, "old", classic)

		By("choosing the pool while the plugin is there: it is refused, and nothing is touched")
		choose(ctx, classic)
		Eventually(ctx, func(ctx context.Context) (string, error) { return where(ctx, classic) }).
			Should(SatisfyAll(HavePrefix("Blocked"), ContainSubstring("nvidia.com/gpu")))
		Expect(operand(ctx, "tessera-driver", classic)).To(BeEmpty())
		Expect(r.awaitRunning(ctx, "old", classic).UID).To(Equal(old.UID))

		By("removing plugin and pods: the node becomes ready")
		r.remove(ctx, "old")
		r.remove(ctx, "plugin")
		stands(ctx, classic, v1alpha1.PhaseReady, cluster.NewDriver)
		served(ctx, classic)
		Expect(elsewhere.awaitRunning(ctx, "elsewhere", hopper).UID).To(Equal(steady.UID))
	}, limit)
}

// choose removes the label that excludes a node.
func choose(ctx context.Context, name string) {
	GinkgoHelper()
	patch := []byte(`{"metadata":{"labels":{"` + excluded + `":null}}}`)
	_, err := c.Client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// served checks that a pod gets a GPU of the node and releases it.
func served(ctx context.Context, name string) {
	GinkgoHelper()
	r := newRoom(ctx)
	r.claim(ctx, "gpu", wholeClass)
	r.deploy(ctx, "served", r.spec(name, "gpu"))
	pod := r.awaitRunning(ctx, "served", name)
	Eventually(ctx, func(ctx context.Context) (string, error) { return r.says(ctx, pod.Name) }).Should(ContainSubstring(`"uuid"`))
	r.remove(ctx, "served")
}

// run runs a script on a node.
func run(ctx context.Context, on, script string) string {
	GinkgoHelper()
	out, err := node(on).Exec(ctx, "sh", "-c", script)
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// runtimeOf returns the status of the node's container runtime, whose PID changes with a restart. The machine
// identifies the process; other processes of the same name are programs that it is about to start.
func runtimeOf(ctx context.Context, on string) machine.ServiceStatus {
	GinkgoHelper()
	services, err := node(on).Services(ctx)
	Expect(err).NotTo(HaveOccurred())
	at := slices.IndexFunc(services, func(s machine.ServiceStatus) bool { return s.Name == lab.Containerd })
	Expect(at).To(BeNumerically(">=", 0), "containerd on %s: %v", on, services)
	return services[at]
}
