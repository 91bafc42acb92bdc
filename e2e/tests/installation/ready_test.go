package installation

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// bare returns the nodes that are not excluded initially.
func bare() []string { return []string{hopper, ampere, older} }

func installs() {
	It("A1: brings bare nodes to pods that compute, every phase timed", Label("install"), func(ctx context.Context) {
		for _, name := range bare() {
			Expect(hardware(name).DriverLoaded).To(BeFalse())
		}
		began := time.Now()
		Expect(c.InstallChart(ctx, nil)).To(Succeed())
		Expect(c.AwaitPolicy(ctx, harness.Patience)).To(Succeed())
		for _, name := range bare() {
			n := gpuNode(ctx, name)
			Expect(n.Status.Phase).To(Equal(v1alpha1.PhaseReady))
			for _, condition := range []string{
				v1alpha1.ConditionDriverValidated, v1alpha1.ConditionToolkitValidated, v1alpha1.ConditionAgentValidated, v1alpha1.ConditionWorkloadValidated,
				v1alpha1.ConditionReady,
			} {
				Expect(meta.IsStatusConditionTrue(n.Status.Conditions, condition)).To(BeTrue(), "%s of %s: %+v", condition, name, n.Status.Conditions)
			}
			Expect(hardware(name)).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"DriverLoaded": BeTrue(), "DriverVersion": Equal(cluster.OldDriver)}))
			inOrder(ctx, func() []string { return log.since(name, began) }, "DriverInstalling", "Validating", "Ready")
			for _, s := range log.of(name) {
				GinkgoWriter.Printf("%s %s after %s\n", name, s.Phase, s.At.Sub(began).Round(100*time.Millisecond))
			}
		}
		r := newRoom(ctx)
		r.claim(ctx, "gpu", wholeClass)
		r.deploy(ctx, "user", r.spec(hopper, "gpu"))
		r.awaitRunning(ctx, "user", hopper)
	}, limit)

	It("leaves alone nodes that are excluded", func(ctx context.Context) {
		for _, name := range []string{hosted, legacy, classic} {
			Expect(hardware(name).DriverLoaded).To(BeFalse())
			Expect(operand(ctx, "tessera-node", name)).To(BeEmpty())
		}
	})

	It("A2: gives every operating system its own driver image, and no node another's", func(ctx context.Context) {
		want := map[string]string{hopper: cluster.Ubuntu24, ampere: cluster.Ubuntu24, older: cluster.Ubuntu22}
		for name, system := range want {
			Expect(gpuNode(ctx, name).Status.Hardware.OS).To(Equal(system))
			pods := operand(ctx, "tessera-driver", name)
			Expect(pods).To(HaveLen(1))
			Expect(image(pods[0], "nvidia-driver-ctr")).To(Equal(cluster.DriverImage + ":" + cluster.OldDriver + "-" + system))
		}
		Eventually(ctx, func(ctx context.Context) ([]int32, error) { // the DaemonSet controller updates the counts after the pods
			sets, err := c.Client.AppsV1().DaemonSets(cluster.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			var counts []int32
			for _, set := range sets.Items {
				if strings.HasPrefix(set.Name, "tessera-driver-") {
					counts = append(counts, set.Status.DesiredNumberScheduled)
				}
			}
			return counts, nil
		}).Should(ConsistOf(int32(2), int32(1)), "a DaemonSet for each operating system, on its nodes only")
	})

	It("serves the metrics of every GPU through a monitor claim", func(ctx context.Context) {
		for _, name := range bare() {
			want := len(hardware(name).GPUs)
			// Profiling metrics need CAP_SYS_ADMIN.
			for _, metric := range []string{"DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"} {
				Eventually(ctx, func(ctx context.Context) (int, error) {
					text, err := metrics(ctx, name)
					return strings.Count(text, "\n"+metric+"{"), err
				}).Should(Equal(want), "GPUs of %s for which the exporter shows %s", name, metric)
			}
		}
	})
}

// metrics returns the metrics of the exporter of a node.
func metrics(ctx context.Context, on string) (string, error) {
	pods, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=tessera-dcgm-exporter", FieldSelector: "spec.nodeName=" + on,
	})
	if err != nil || len(pods.Items) == 0 {
		return "", err
	}
	text, err := node(on).Exec(ctx, "curl", "-sS", "--max-time", "5", "http://"+pods.Items[0].Status.PodIP+":9400/metrics")
	return "\n" + string(text), err
}

func image(pod corev1.Pod, container string) string {
	for _, c := range pod.Spec.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

// inOrder waits until a way has passed the places in this order. Observed phases may be delayed.
func inOrder(ctx context.Context, way func() []string, places ...string) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		at, words := 0, way()
		for _, word := range words {
			if at < len(places) && word == places[at] {
				at++
			}
		}
		if at < len(places) {
			return fmt.Errorf("%v does not pass %v in order", words, places)
		}
		return nil
	}).Should(Succeed())
}

// keepsPodsAlive covers changes that do not affect running pods.
func keepsPodsAlive() {
	var r room
	var before *corev1.Pod
	Describe("while a pod has a GPU", Ordered, func() {
		BeforeAll(func(ctx context.Context) {
			r = newRoom(ctx)
			r.claim(ctx, "gpu", wholeClass)
			r.deploy(ctx, "steady", r.spec(hopper, "gpu"))
			before = r.awaitRunning(ctx, "steady", hopper)
		})
		AfterEach(func(ctx context.Context) {
			after := r.awaitRunning(ctx, "steady", hopper)
			Expect(after.UID).To(Equal(before.UID), "the pod was replaced")
			Expect(after.Status.ContainerStatuses[0].ContainerID).To(Equal(before.Status.ContainerStatuses[0].ContainerID), "its container was restarted")
			Expect(gpuNode(ctx, hopper).Spec.Maintenance).To(BeNil())
		})

		It("restarts without a trace", func(ctx context.Context) {
			killInstaller(ctx)
			Eventually(ctx, installerReady).Should(BeTrue())
			Expect(c.AwaitPolicy(ctx, harness.Patience)).To(Succeed())
		})

		It("upgrades the agent, and a pod that comes meanwhile gets its GPU", func(ctx context.Context) {
			edit(ctx, func(p *v1alpha1.ClusterPolicy) { p.Spec.NodeAgent.Env = []corev1.EnvVar{{Name: "EDITED", Value: "1"}} })
			r.claim(ctx, "meanwhile", wholeClass)
			r.deploy(ctx, "meanwhile", r.spec(hopper, "meanwhile"))
			Eventually(ctx, func(ctx context.Context) (appsv1.DaemonSetStatus, error) {
				set, err := c.Client.AppsV1().DaemonSets(cluster.Namespace).Get(ctx, cluster.AgentName, metav1.GetOptions{})
				edited := func(e corev1.EnvVar) bool { return e.Name == "EDITED" }
				if err != nil || set.Generation != set.Status.ObservedGeneration || !slices.ContainsFunc(set.Spec.Template.Spec.Containers[0].Env, edited) {
					return appsv1.DaemonSetStatus{}, err
				}
				return set.Status, nil
			}).Should(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"UpdatedNumberScheduled": BeEquivalentTo(3), "NumberReady": BeEquivalentTo(3), "NumberUnavailable": BeZero()}))
			r.awaitRunning(ctx, "meanwhile", hopper)
		}, limit)

		It("A7: takes an edit that does not touch the driver as such, and says so before", func(ctx context.Context) {
			edit(ctx, func(p *v1alpha1.ClusterPolicy) {
				p.Spec.DaemonSets.Labels = map[string]string{"example.com/edited": "yes"}
			})
			Eventually(ctx, func(ctx context.Context) (bool, error) {
				p, err := c.Policy(ctx)
				return err == nil && p.Status.ObservedGeneration == p.Generation, err
			}).Should(BeTrue())
			p, err := c.Policy(ctx)
			Expect(err).NotTo(HaveOccurred())
			if p.Status.Plan != nil {
				Expect(p.Status.Plan).To(gstruct.PointTo(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Nodes": BeZero(), "Pods": BeZero()})))
			}
			Expect(c.AwaitPolicy(ctx, harness.Patience)).To(Succeed())
		}, limit)

		It("bears an API server that is away for a minute", Label("long"), func(ctx context.Context) {
			Expect(c.ControlPlane().StopService(ctx, "kube-apiserver")).To(Succeed())
			Consistently(ctx, func() []fakegpu.Module {
				loaded, err := fakegpu.Modules(node(hopper).GPUFolder())
				Expect(err).NotTo(HaveOccurred())
				return loaded
			}).WithTimeout(time.Minute).WithPolling(time.Second).Should(ContainElement(fakegpu.NVIDIA))
			Expect(c.ControlPlane().StartService(ctx, "kube-apiserver")).To(Succeed())
			Expect(c.AwaitPolicy(ctx, harness.Patience)).To(Succeed())
		}, limit)
	})
}

// deploy creates a Deployment of one pod. A bare pod would be rejected until the new namespace has a service account;
// the pod of a Deployment is retried.
func (r room) deploy(ctx context.Context, name string, spec corev1.PodSpec) {
	GinkgoHelper()
	labels := map[string]string{"app": name}
	_, err := c.Client.AppsV1().Deployments(r.name).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// remove deletes a Deployment and waits until its pods are deleted and the controller has released their claims.
func (r room) remove(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(c.Client.AppsV1().Deployments(r.name).Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	Eventually(ctx, func(ctx context.Context) (int, error) {
		pods, err := c.Client.CoreV1().Pods(r.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		return len(pods.Items), err
	}).Should(BeZero())
	Eventually(ctx, func(ctx context.Context) ([]string, error) { return r.held(ctx, name) }).Should(BeEmpty())
}

// held returns the claims of the room that are reserved for pods of a Deployment.
func (r room) held(ctx context.Context, app string) ([]string, error) {
	claims, err := c.Client.ResourceV1().ResourceClaims(r.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, claim := range claims.Items {
		if slices.ContainsFunc(claim.Status.ReservedFor, func(user resourceapi.ResourceClaimConsumerReference) bool {
			return strings.HasPrefix(user.Name, app+"-")
		}) {
			names = append(names, claim.Name)
		}
	}
	return names, nil
}

// says returns the log of a pod.
func (r room) says(ctx context.Context, pod string) (string, error) {
	stream, err := c.Client.CoreV1().Pods(r.name).GetLogs(pod, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close() //nolint:errcheck // read
	text, err := io.ReadAll(stream)
	return string(text), err
}
