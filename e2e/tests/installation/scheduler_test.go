package installation

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// schedules covers the chart's scheduler next to the cluster's kube-scheduler.
func schedules() {
	It("assigns pods with GPUs to tessera-scheduler while it is available, and leaves running pods alone when it is not", func(ctx context.Context) {
		r := newRoom(ctx)
		r.claim(ctx, "before", wholeClass)
		r.deploy(ctx, "before", r.spec(hopper, "before"))
		before := r.awaitRunning(ctx, "before", hopper)
		Expect(before.Spec.SchedulerName).To(Equal(cluster.SchedulerName), "no namespace has a label, and no pod names a scheduler")

		By("stopping the scheduler: it cannot run on a cordoned node")
		cordon(ctx, true)
		DeferCleanup(func(ctx context.Context) { cordon(ctx, false) })
		pods := c.Client.CoreV1().Pods(cluster.Namespace)
		ofScheduler := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + cluster.SchedulerName}
		Expect(pods.DeleteCollection(ctx, metav1.DeleteOptions{}, ofScheduler)).To(Succeed())
		Eventually(ctx, assigned).Should(BeFalse())
		r.claim(ctx, "meanwhile", wholeClass)
		r.deploy(ctx, "meanwhile", r.spec(hopper, "meanwhile"))
		var meanwhile *corev1.Pod
		Eventually(ctx, func(ctx context.Context) (*corev1.Pod, error) {
			var err error
			meanwhile, err = r.only(ctx, "meanwhile")
			return meanwhile, err
		}).ShouldNot(BeNil())

		By("starting it again: the pod of the meantime has kube-scheduler, for which the devices are tainted")
		cordon(ctx, false)
		Eventually(ctx, assigned).Should(BeTrue())
		Consistently(ctx, func(ctx context.Context) (string, error) {
			pod, err := r.only(ctx, "meanwhile")
			if err != nil || pod == nil {
				return "", err
			}
			return pod.Spec.SchedulerName + " " + string(pod.Status.Phase), nil
		}).WithTimeout(3 * time.Second).Should(Equal("default-scheduler Pending"))
		Expect(r.awaitRunning(ctx, "before", hopper).UID).To(Equal(before.UID))

		By("creating the pod again")
		Expect(c.Client.CoreV1().Pods(r.name).Delete(ctx, meanwhile.Name, metav1.DeleteOptions{})).To(Succeed())
		Expect(r.awaitRunning(ctx, "meanwhile", hopper).Spec.SchedulerName).To(Equal(cluster.SchedulerName))
	}, limit)
}

// requesting returns a pod that requests extended resources, as pods for a device plugin do.
func requesting(name corev1.ResourceName, count int64) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: cluster.ProbeImage, Command: []string{"probe", "--stay", "100000"},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{name: *resource.NewQuantity(count, resource.DecimalSI)}},
	}}}
}

// assigned reports whether a new pod with a claim is assigned to tessera-scheduler.
func assigned(ctx context.Context) (bool, error) {
	claim := "none"
	pod, err := c.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "assigned"}, Spec: corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}, Containers: []corev1.Container{{Name: "main", Image: "none"}},
	}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return pod.Spec.SchedulerName == cluster.SchedulerName, err
}

// cordon makes all nodes unschedulable, or schedulable again.
func cordon(ctx context.Context, on bool) {
	GinkgoHelper()
	patch := []byte(`{"spec":{"unschedulable":null}}`)
	if on {
		patch = []byte(`{"spec":{"unschedulable":true}}`)
	}
	for _, n := range c.Nodes() {
		_, err := c.Client.CoreV1().Nodes().Patch(ctx, n.Name(), types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
}

// only returns the pod of a Deployment that is not being deleted, or nil if there is none yet.
func (r room) only(ctx context.Context, app string) (*corev1.Pod, error) {
	pods, err := c.Client.CoreV1().Pods(r.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			return &pod, nil
		}
	}
	return nil, nil
}
