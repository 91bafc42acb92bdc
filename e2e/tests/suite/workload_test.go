package suite

import (
	"context"
	"fmt"
	"io"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// Names of the DeviceClasses in deployments/.
const (
	wholeClass     = "gpu.tessera.dev"
	migClass       = "mig.tessera.dev"
	timeShareClass = "timeshare.tessera.dev"
	mpsClass       = "mps.tessera.dev"
	monitorClass   = "monitor.tessera.dev"
)

// Profiles of an 80 GB H100 that the specs use.
const (
	oneSlice    = "1g.10gb"
	twoSlices   = "2g.20gb"
	threeSlices = "3g.40gb"
)

// account is the default service account of every namespace, which pods use.
const account = "default"

// room is a namespace of one spec. It is deleted, with every claim in it, before the next spec begins.
type room struct {
	*cluster.Cluster
	namespace string
}

// newRoom creates a room in the shared cluster.
func newRoom(ctx context.Context) room {
	GinkgoHelper()
	return newRoomIn(ctx, c)
}

func newRoomIn(ctx context.Context, c *cluster.Cluster) room {
	GinkgoHelper()
	namespace, err := c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	r := room{Cluster: c, namespace: namespace.Name}
	DeferCleanup(r.clear)
	answer(ctx, func(ctx context.Context) (*corev1.ServiceAccount, error) { // until then, pods and token requests are rejected
		return c.Client.CoreV1().ServiceAccounts(r.namespace).Get(ctx, account, metav1.GetOptions{})
	})
	return r
}

func (r room) clear(ctx context.Context) {
	GinkgoHelper()
	namespaces := r.Client.CoreV1().Namespaces()
	Expect(namespaces.Delete(ctx, r.namespace, metav1.DeleteOptions{})).To(Succeed())
	Eventually(ctx, func(ctx context.Context) bool {
		_, err := namespaces.Get(ctx, r.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).Should(BeTrue(), "namespace %s must go", r.namespace)
}

// Selectors of devices by product.
const (
	onH100 = `device.attributes['gpu.tessera.dev'].productName.startsWith('NVIDIA H100')`
	onA30  = `device.attributes['gpu.tessera.dev'].productName.startsWith('NVIDIA A30')`
	onL40S = `device.attributes['gpu.tessera.dev'].productName.startsWith('NVIDIA L40S')`
)

// profile selects MIG devices by profile.
func profile(name string) string {
	return fmt.Sprintf(`device.attributes['gpu.tessera.dev'].profile == '%s'`, name)
}

// onParent selects the MIG devices of one GPU.
func onParent(uuid string) string {
	return fmt.Sprintf(`device.attributes['gpu.tessera.dev'].parentUUID == '%s'`, uuid)
}

// onGPU selects a GPU in any shape except MIG.
func onGPU(uuid string) string {
	return fmt.Sprintf(`device.attributes['gpu.tessera.dev'].uuid == '%s'`, uuid)
}

func request(name, class string, selectors ...string) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class}
	for _, cel := range selectors {
		exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: cel}})
	}
	return resourceapi.DeviceRequest{Name: name, Exactly: exactly}
}

// share requests a part of a shared GPU. Without compute it is not limited.
func share(class, uuid, memory, compute string) resourceapi.DeviceRequest {
	r := request("share", class, onGPU(uuid))
	requests := map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}
	if compute != "" {
		requests["compute"] = resource.MustParse(compute)
	}
	r.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: requests}
	return r
}

// claim creates a claim.
func (r room) claim(ctx context.Context, name string, requests ...resourceapi.DeviceRequest) {
	GinkgoHelper()
	Expect(r.tryClaim(ctx, name, requests...)).To(Succeed())
}

func (r room) tryClaim(ctx context.Context, name string, requests ...resourceapi.DeviceRequest) error {
	return r.make(ctx, claimOf(name, requests...))
}

func claimOf(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
}

// make creates the claim unchanged.
func (r room) make(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	_, err := r.Client.ResourceV1().ResourceClaims(r.namespace).Create(ctx, claim, metav1.CreateOptions{})
	return err
}

// stay runs the probe with a question, by default which devices exist, and then keeps the container running until it is
// terminated.
func stay(question ...string) []string {
	return append([]string{"probe", "--stay", "3600"}, question...)
}

// withoutDriver keeps a container running that has no claim: the probe ends there, because it finds no driver.
func withoutDriver() []string { return []string{"sleep", "3600"} }

// podOf returns a pod that uses claims of the same namespace, by name.
func podOf(name string, command []string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](2),
			Containers:                    []corev1.Container{{Name: "main", Image: cluster.ProbeImage, Command: command}},
		},
	}
	for _, claim := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: ptr.To(claim)})
		main := &pod.Spec.Containers[0].Resources
		main.Claims = append(main.Claims, corev1.ResourceClaim{Name: claim})
	}
	return pod
}

func (r room) create(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(r.tryCreate(ctx, pod)).To(Succeed())
}

func (r room) tryCreate(ctx context.Context, pod *corev1.Pod) error {
	_, err := r.Client.CoreV1().Pods(r.namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// hold creates a claim and a long-running pod of the same name, and returns when the pod runs.
func (r room) hold(ctx context.Context, name string, requests ...resourceapi.DeviceRequest) *corev1.Pod {
	GinkgoHelper()
	r.claim(ctx, name, requests...)
	r.create(ctx, podOf(name, stay(), name))
	return r.running(ctx, name)
}

// release deletes a pod and its claim and returns when both are deleted.
func (r room) release(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(r.letGo(ctx, name)).To(Succeed())
}

func (r room) letGo(ctx context.Context, name string) error {
	pods, claims := r.Client.CoreV1().Pods(r.namespace), r.Client.ResourceV1().ResourceClaims(r.namespace)
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := gone(ctx, func() error { _, err := pods.Get(ctx, name, metav1.GetOptions{}); return err }); err != nil {
		return fmt.Errorf("pod %s: %w", name, err)
	}
	if err := claims.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := gone(ctx, func() error { _, err := claims.Get(ctx, name, metav1.GetOptions{}); return err }); err != nil {
		return fmt.Errorf("claim %s: %w", name, err)
	}
	return nil
}

func (r room) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return r.Client.CoreV1().Pods(r.namespace).Get(ctx, name, metav1.GetOptions{})
}

// running waits until the pod runs and returns it.
func (r room) running(ctx context.Context, name string) *corev1.Pod {
	GinkgoHelper()
	return r.reach(ctx, name, corev1.PodRunning)
}

// succeeded waits until the pod has succeeded and returns it.
func (r room) succeeded(ctx context.Context, name string) *corev1.Pod {
	GinkgoHelper()
	return r.reach(ctx, name, corev1.PodSucceeded)
}

func (r room) reach(ctx context.Context, name string, phase corev1.PodPhase) *corev1.Pod {
	GinkgoHelper()
	var pod *corev1.Pod
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		var err error
		pod, err = r.pod(ctx, name)
		g.Expect(err).NotTo(HaveOccurred())
		if phase != corev1.PodFailed && pod.Status.Phase == corev1.PodFailed {
			StopTrying("the pod failed: " + pod.Status.Message + " " + r.mustLog(ctx, name)).Now()
		}
		g.Expect(pod.Status.Phase).To(Equal(phase), func() string { return r.why(ctx, name) })
	}).Should(Succeed())
	return pod
}

// why returns the events of a pod, for failure messages.
func (r room) why(ctx context.Context, name string) string {
	events, err := r.Client.CoreV1().Events(r.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, e := range events.Items {
		lines = append(lines, e.Reason+": "+e.Message)
	}
	return strings.Join(lines, "\n")
}

func (r room) log(ctx context.Context, name string) (string, error) {
	stream, err := r.Client.CoreV1().Pods(r.namespace).GetLogs(name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close() //nolint:errcheck // opened for reading
	text, err := io.ReadAll(stream)
	return string(text), err
}

func (r room) mustLog(ctx context.Context, name string) string {
	text, err := r.log(ctx, name)
	if err != nil {
		return err.Error()
	}
	return text
}

// says waits until the pod's log matches. The log of a completed pod may be delayed: the runtime may report the exit
// before the log is written.
func (r room) says(ctx context.Context, name string, matcher gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) string { return r.mustLog(ctx, name) }).Should(matcher)
}

// seen returns the devices that the pod's probe can use.
func (r room) seen(ctx context.Context, name string) []expect.Seen {
	GinkgoHelper()
	var devices []expect.Seen
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		text, err := r.log(ctx, name)
		g.Expect(err).NotTo(HaveOccurred())
		report, ok := expect.ParseReport(text)
		g.Expect(ok).To(BeTrue(), "no report in %q", text)
		devices = report.Devices()
	}).Should(Succeed())
	return devices
}

// refused returns when an event of the pod contains the text.
func (r room) refused(ctx context.Context, name, text string) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) string { return r.why(ctx, name) }).Should(ContainSubstring(text))
}

// results returns the allocation results of a claim.
func (r room) results(ctx context.Context, name string) []resourceapi.DeviceRequestAllocationResult {
	GinkgoHelper()
	claim, err := r.Client.ResourceV1().ResourceClaims(r.namespace).Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(claim.Status.Allocation).NotTo(BeNil())
	return claim.Status.Allocation.Devices.Results
}
