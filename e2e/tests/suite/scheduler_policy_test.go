package suite

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// extended returns a pod that requests whole GPUs by the extended resource name of device plugins.
func extended(name string, count int64) *corev1.Pod {
	pod := podOf(name, stay())
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(count, resource.DecimalSI)}
	return pod
}

// templated creates a template and returns a pod that gets its claim from it.
func (r room) templated(ctx context.Context, name string, wish resourceapi.DeviceRequest) *corev1.Pod {
	GinkgoHelper()
	_, err := r.Client.ResourceV1().ResourceClaimTemplates(r.namespace).Create(ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: claimOf(name, wish).Spec},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	pod := podOf(name, stay(), name)
	pod.Spec.ResourceClaims[0].ResourceClaimName = nil
	pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = ptr.To(name)
	return pod
}

// held returns the devices that claims of the room hold, by pool and name.
func (r room) held(ctx context.Context) []string {
	GinkgoHelper()
	claims := answer(ctx, func(ctx context.Context) (*resourceapi.ResourceClaimList, error) {
		return r.Client.ResourceV1().ResourceClaims(r.namespace).List(ctx, metav1.ListOptions{})
	})
	var devices []string
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			devices = append(devices, result.Pool+"/"+result.Device)
		}
	}
	return devices
}

var _ = Describe("A second scheduler", func() {
	It("allocates none of our devices, and the pod says what to do", func(ctx context.Context) {
		r := newRoom(ctx)
		user, kubeconfig := r.secondScheduler(ctx)
		startScheduler(ctx, stockProgram, stockConfig("second", kubeconfig))

		slice := request("slice", migClass, onH100, profile(oneSlice))
		r.claim(ctx, "by-name", slice)
		pods := []*corev1.Pod{podOf("by-name", stay(), "by-name"), r.templated(ctx, "by-template", slice), extended("by-resource", 1)}
		pods = append(pods, podOf("without", withoutDriver()))
		for _, pod := range pods {
			pod.Spec.SchedulerName = "second"
			r.create(ctx, pod)
		}
		for _, pod := range pods[:3] {
			r.refused(ctx, pod.Name, user+" may not allocate devices of "+driver)
			r.refused(ctx, pod.Name, "set schedulerName: tessera-scheduler in the pod")
		}
		r.running(ctx, "without") // the account is a scheduler's
		Expect(r.held(ctx)).To(BeEmpty())
	})

	It("is not needed for what controllers and the agent write", func(ctx context.Context) {
		r := newRoom(ctx)
		slice := request("slice", migClass, onH100, profile(oneSlice))
		r.claim(ctx, "kept", slice)
		r.create(ctx, podOf("kept", stay(), "kept"))
		r.create(ctx, r.templated(ctx, "made", slice))
		r.create(ctx, extended("counted", 1))
		for _, name := range []string{"kept", "made", "counted"} {
			r.running(ctx, name)
		}
		Expect(r.held(ctx)).To(HaveLen(3))
		Eventually(ctx, func(ctx context.Context) ([]resourceapi.AllocatedDeviceStatus, error) {
			claim, err := r.Client.ResourceV1().ResourceClaims(r.namespace).Get(ctx, "kept", metav1.GetOptions{})
			return claim.Status.Devices, err
		}).ShouldNot(BeEmpty(), "the agent says what the device is")

		// The controller removes the reservation and the allocation of a claim that is kept.
		for _, name := range []string{"kept", "made", "counted"} {
			Expect(r.Client.CoreV1().Pods(r.namespace).Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		}
		Eventually(ctx, r.held).Should(BeEmpty())
	})
})
