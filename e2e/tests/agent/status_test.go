package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/kubelet-plugin/status"
)

const (
	agentNamespace = "tessera-system"
	agentAccount   = "tessera-node"
	otherDriver    = "nic.example.com"
)

// identify gives the agent of the node the identity of its pod, with the permissions as shipped, instead of the
// administrator's.
func (n *node) identify() {
	n.t.Helper()
	ctx := n.t.Context()
	n.must(grant(ctx))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Namespace: agentNamespace},
		Spec: corev1.PodSpec{
			NodeName: n.name, ServiceAccountName: agentAccount, Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}
	pod, err := shared.client.CoreV1().Pods(agentNamespace).Create(ctx, pod, metav1.CreateOptions{})
	n.must(err)
	token, err := shared.client.CoreV1().ServiceAccounts(agentNamespace).CreateToken(ctx, agentAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
		}},
	}, metav1.CreateOptions{})
	n.must(err)
	access, err := clientcmd.LoadFromFile(shared.kubeconfig)
	n.must(err)
	for _, user := range access.AuthInfos {
		user.Token = token.Status.Token
	}
	n.kubeconfig = filepath.Join(n.dir, "kubeconfig")
	n.must(clientcmd.WriteToFile(*access, n.kubeconfig))
}

// grant creates the agent's service account with its permissions, once, and waits until they are in effect.
func grant(ctx context.Context) error {
	source, err := binaries.Source()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(source, "deployments", "rbac.yaml"))
	if err != nil {
		return err
	}
	objects, err := cluster.Decode(text)
	if err != nil {
		return err
	}
	var account corev1.ServiceAccount
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	into := map[string]any{"ServiceAccount": &account, "ClusterRole": &role, "ClusterRoleBinding": &binding}
	for _, object := range objects {
		if target := into[object.GetKind()]; target != nil && object.GetName() == agentAccount {
			err = errors.Join(err, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, target))
		}
	}
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}}
	for _, create := range []func() error{
		func() error {
			_, err := shared.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := shared.client.CoreV1().ServiceAccounts(agentNamespace).Create(ctx, &account, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := shared.client.RbacV1().ClusterRoles().Create(ctx, &role, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := shared.client.RbacV1().ClusterRoleBindings().Create(ctx, &binding, metav1.CreateOptions{})
			return err
		},
	} {
		if err := create(); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return poll(ctx, func(ctx context.Context) error {
		review, err := shared.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + agentNamespace + ":" + agentAccount,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Group: resourceapi.GroupName, Resource: "resourceclaims", Verb: "get"},
			},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = errors.New("the agent may not read claims yet")
		}
		return err
	})
}

// onNode allocates the claim on the node for two pods, with an additional device of another driver.
func onNode(n *node) change {
	return func(c *resourceapi.ResourceClaim) {
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name:    "nic",
			Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: otherDriver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		})
		allocation := c.Status.Allocation
		allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{n.name}}},
		}}}
		allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: "nic", Driver: otherDriver, Pool: n.name, Device: "nic",
		})
		c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
			Driver: otherDriver, Pool: n.name, Device: "nic", Data: &runtime.RawExtension{Raw: []byte(`{"vlan":7}`)},
		}}
		for _, pod := range []string{"a", "b"} {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
				Resource: "pods", Name: c.Name + "-" + pod, UID: types.UID("uid-" + c.Name + "-" + pod),
			})
		}
	}
}

// object reads the claim.
func (n *node) object(ctx context.Context, claim *drapb.Claim) (*resourceapi.ResourceClaim, error) {
	return shared.client.ResourceV1().ResourceClaims(claim.GetNamespace()).Get(ctx, claim.GetName(), metav1.GetOptions{})
}

// tells waits until the claim's status has exactly these entries, one line each, sorted.
func (n *node) tells(what string, claim *drapb.Claim, want ...string) {
	n.t.Helper()
	want = append(want, otherDriver+` nic {"vlan":7}`)
	n.eventually(what, func(ctx context.Context) error {
		object, err := n.object(ctx, claim)
		if err != nil {
			return err
		}
		var lines []string
		for _, e := range object.Status.Devices {
			lines = append(lines, line(e))
		}
		slices.Sort(lines)
		if diff := cmp.Diff(want, lines); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

// line returns a short form of an entry.
func line(e resourceapi.AllocatedDeviceStatus) string {
	text := e.Driver + " " + e.Device
	if e.Driver != driver {
		return text + " " + string(e.Data.Raw)
	}
	var data status.Data
	if e.Data != nil {
		if err := json.Unmarshal(e.Data.Raw, &data); err != nil {
			return err.Error()
		}
		text += " " + data.Type + " on " + data.GPU
	}
	if data.MIG != nil {
		text += fmt.Sprintf(" %s gi%d/ci%d of %s", data.MIG.Profile, data.MIG.GPUInstanceID, data.MIG.ComputeInstanceID, data.ParentUUID)
	}
	if data.UUID != "" {
		text += " " + data.UUID
	}
	for _, c := range e.Conditions {
		text += fmt.Sprintf(", %s=%s %s", c.Type, c.Status, c.Reason)
	}
	return text
}

// warns waits for one Event with the reason on the claim and on each of its pods, and returns its message.
func (n *node) warns(claim *drapb.Claim, reason string) string {
	n.t.Helper()
	return n.reports(claim, corev1.EventTypeWarning, reason)
}

// reports is warns for Events of the type.
func (n *node) reports(claim *drapb.Claim, kind, reason string) string {
	n.t.Helper()
	var message string
	n.eventually("Events "+reason, func(ctx context.Context) error {
		list, err := shared.client.CoreV1().Events(claim.GetNamespace()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var objects []string
		for _, e := range list.Items {
			if strings.HasPrefix(e.InvolvedObject.Name, claim.GetName()) && e.Reason == reason && e.Type == kind && e.Source.Host == n.name {
				objects = append(objects, e.InvolvedObject.Kind+" "+e.InvolvedObject.Name)
				message = e.Message
			}
		}
		slices.Sort(objects)
		if diff := cmp.Diff([]string{"Pod " + claim.GetName() + "-a", "Pod " + claim.GetName() + "-b", "ResourceClaim " + claim.GetName()}, objects); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
	return message
}

func TestClaimStatus(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	n.identify()
	a, k := n.run()
	a.waitReady()
	claim := n.claim("both", []gpu.Device{n.slice(0, 19, 3), n.whole(1)}, onNode(n))
	k.mustPrepare(claim)
	want := []string{
		fmt.Sprintf("%s %s %s, Ready=True Prepared", driver, n.deviceOf(claim, 0), n.onSlice(0)),
		fmt.Sprintf("%s %s %s, Ready=True Prepared", driver, n.deviceOf(claim, 1), n.onWhole("gpu", 1)),
	}
	n.tells("prepared", claim, want...)
	before, err := n.object(t.Context(), claim)
	n.must(err)
	k.mustPrepare(claim)

	t.Run("another node's agent", func(t *testing.T) {
		foreign(t, before)
	})
	// Another client removes the entries while no agent runs.
	a.kill()
	object, err := n.object(t.Context(), claim)
	n.must(err)
	if object.ResourceVersion != before.ResourceVersion {
		t.Error("what was written already was written again")
	}
	object.Status.Devices = slices.DeleteFunc(object.Status.Devices, func(e resourceapi.AllocatedDeviceStatus) bool { return e.Driver == driver })
	_, err = shared.client.ResourceV1().ResourceClaims(object.Namespace).UpdateStatus(t.Context(), object, metav1.UpdateOptions{})
	n.must(err)
	_, k = n.run()
	n.tells("after a restart", claim, want...)

	k.mustUnprepare(claim)
	n.tells("unprepared", claim)
	n.isClean()
}

// onSlice returns the expected entry of the GPU's only MIG device, from the state of the hardware.
func (n *node) onSlice(index int) string {
	n.t.Helper()
	g := n.truth().GPUs[index]
	if len(g.Instances) != 1 || len(g.Instances[0].Computes) != 1 {
		n.t.Fatalf("GPU %d has %+v, want one slice", index, g.Instances)
	}
	i := g.Instances[0]
	return fmt.Sprintf("mig on %s %s gi%d/ci%d of %s %s", n.whole(index).GPU, i.Name, i.ID, i.Computes[0].ID, g.UUID, i.Computes[0].UUID)
}

// onWhole returns the expected entry of a GPU as a device of the type.
func (n *node) onWhole(kind string, index int) string {
	return fmt.Sprintf("%s on %s %s", kind, n.whole(index).GPU, n.truth().GPUs[index].UUID)
}

// deviceOf returns the name of the claim's device at the position.
func (n *node) deviceOf(claim *drapb.Claim, i int) string {
	n.t.Helper()
	object, err := n.object(n.t.Context(), claim)
	n.must(err)
	return object.Status.Allocation.Devices.Results[i].Device
}

// foreign tries to write the claim's entry with the identity of another node's agent.
func foreign(t *testing.T, claim *resourceapi.ResourceClaim) {
	stranger := emptyNode(t, "h100x2")
	stranger.identify()
	access, err := clientcmd.BuildConfigFromFlags("", stranger.kubeconfig)
	stranger.must(err)
	client, err := kubernetes.NewForConfig(access)
	stranger.must(err)
	result := claim.Status.Allocation.Devices.Results[0]
	entry := resourceac.AllocatedDeviceStatus().WithDriver(driver).WithPool(result.Pool).WithDevice(result.Device).WithData(runtime.RawExtension{Raw: []byte(`{"a":1}`)})
	config := resourceac.ResourceClaim(claim.Name, claim.Namespace).WithStatus(resourceac.ResourceClaimStatus().WithDevices(entry))
	_, err = client.ResourceV1().ResourceClaims(claim.Namespace).ApplyStatus(t.Context(), config, metav1.ApplyOptions{FieldManager: "stranger", Force: true})
	if err == nil || !strings.Contains(err.Error(), "resourceclaims/driver") {
		t.Errorf("%v, want a refusal for the driver's entries", err)
	}
}

func TestRefusalIsTold(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	n.identify()
	_, k := n.run()
	holder := n.claim("holder", []gpu.Device{n.slice(0, 19, 0)}, onNode(n))
	k.mustPrepare(holder)
	over := n.claim("over", []gpu.Device{n.slice(0, 9, 0)}, onNode(n))
	for range 3 {
		if _, err := k.prepare(over); err == nil {
			t.Fatal("prepared over another claim")
		}
	}
	if message := n.warns(over, "DeviceInUse"); !strings.Contains(message, n.name) || !strings.Contains(message, holder.GetName()) {
		t.Errorf("%q: want node and holder", message)
	}
	device := n.deviceOf(over, 0)
	n.tells("refused", over, fmt.Sprintf("%s %s, Ready=False DeviceInUse", driver, device))
	k.mustUnprepare(holder)
	k.mustPrepare(over)
	n.tells("prepared", over, fmt.Sprintf("%s %s %s, Ready=True Prepared", driver, device, n.onSlice(0)))
	k.mustUnprepare(over)

	wrong := n.claim("wrong", []gpu.Device{n.whole(0)}, onNode(n), parameters(driver, `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"GPUConfig","timeslicing":{}}`))
	if _, err := k.prepare(wrong); err == nil {
		t.Fatal("prepared with wrong parameters")
	}
	if message := n.warns(wrong, "InvalidParameters"); !strings.Contains(message, "timeslicing") {
		t.Errorf("%q", message)
	}
	n.isClean()
}

func TestTimeSliceIsTold(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	n.identify()
	_, k := n.run()
	share := func(i int) change {
		return result(func(r *resourceapi.DeviceRequestAllocationResult) {
			r.ShareID = new(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)))
		})
	}
	wish := func(interval string) change {
		return parameters(driver, `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"GPUConfig","timeSlicing":{"interval":"`+interval+`"}}`)
	}
	device := gpu.Device{GPU: n.whole(0).GPU, Use: gpu.Use{Shape: gpu.TimeShare}}
	first := n.claim("first", []gpu.Device{device}, onNode(n), share(1), wish("Long"))
	second := n.claim("second", []gpu.Device{device}, onNode(n), share(2), wish("Short"))
	k.mustPrepare(first)
	k.mustPrepare(second)
	name := n.deviceOf(first, 0)
	n.tells("granted", first, fmt.Sprintf("%s %s %s, Ready=True Prepared, TimeSliceApplied=True RequestedIntervalInEffect", driver, name, n.onWhole("timeshare", 0)))
	n.tells("not granted", second, fmt.Sprintf("%s %s %s, Ready=True Prepared, TimeSliceApplied=False DifferentIntervalInEffect", driver, name, n.onWhole("timeshare", 0)))
	if message := n.warns(second, "TimeSliceNotApplied"); !strings.Contains(message, "requested Long") {
		t.Errorf("%q", message)
	}
	object, err := n.object(t.Context(), second)
	n.must(err)
	for _, e := range object.Status.Devices {
		if e.Driver == driver && (e.ShareID == nil || meta.IsStatusConditionTrue(e.Conditions, status.TimeSliceApplied)) {
			t.Errorf("entry %+v", e)
		}
	}
	k.mustUnprepare(first)
	k.mustUnprepare(second)
	n.isClean()
}
