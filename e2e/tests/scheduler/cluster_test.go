package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

const (
	driver    = v1alpha1.DriverName
	namespace = metav1.NamespaceDefault
)

// The classes that pods of the tests name.
const (
	wholeClass  = "gpu.tessera.dev"
	sharedClass = "timeshare.tessera.dev"
	smallClass  = "mig-1g.10gb.tessera.dev"
	largeClass  = "mig-3g.40gb.tessera.dev"
	smallName   = "nvidia.com/mig-1g.10gb"
)

// now deletes without waiting for a kubelet.
var now = metav1.DeleteOptions{GracePeriodSeconds: new(int64)}

// create has the API server create the object.
func create(ctx context.Context, object runtime.Object) error {
	var err error
	switch o := object.(type) {
	case *corev1.Node:
		_, err = shared.Client.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{})
	case *corev1.Pod:
		_, err = shared.Client.CoreV1().Pods(namespace).Create(ctx, o, metav1.CreateOptions{})
	case *resourceapi.DeviceClass:
		_, err = shared.Client.ResourceV1().DeviceClasses().Create(ctx, o, metav1.CreateOptions{})
	case *resourceapi.ResourceSlice:
		_, err = shared.Client.ResourceV1().ResourceSlices().Create(ctx, o, metav1.CreateOptions{})
	case *resourceapi.ResourceClaim:
		_, err = shared.Client.ResourceV1().ResourceClaims(namespace).Create(ctx, o, metav1.CreateOptions{})
	default:
		err = fmt.Errorf("create a %T", object)
	}
	return err
}

func mustCreate(t *testing.T, objects ...runtime.Object) {
	t.Helper()
	for _, object := range objects {
		if err := create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// eventually waits until the check succeeds.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if err := harness.Poll(ctx, check); err != nil {
		t.Fatal(err)
	}
}

// nodes gives the cluster nodes of the machines, node-0 and so on, until the test ends.
func nodes(t *testing.T, machines ...string) {
	t.Helper()
	for i, machine := range machines {
		addNode(t, fmt.Sprintf("node-%d", i), machine)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := errors.Join(
			emptied(ctx),
			shared.Client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
			shared.Client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		if err != nil {
			t.Error(err)
		}
	})
}

func addNode(t *testing.T, name, machine string) {
	t.Helper()
	room := corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("200")}
	mustCreate(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Ready"}},
		},
	})
	// The API server taints every new node as not ready, and no controller takes that back.
	if err := taint(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	for _, s := range published(t, name, machine, 1) {
		mustCreate(t, s)
	}
}

// taint gives the node these taints and no others.
func taint(ctx context.Context, node string, taints ...corev1.Taint) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	if err != nil {
		return err
	}
	_, err = shared.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// published is what the agent of a node publishes.
func published(t *testing.T, node, machine string, generation int64) []*resourceapi.ResourceSlice {
	t.Helper()
	m, err := catalog.FindMachine(machine)
	if err != nil {
		t.Fatal(err)
	}
	hardware, err := m.Node(node)
	if err != nil {
		t.Fatal(err)
	}
	offer, err := v1alpha1.Default().Offer()
	if err != nil {
		t.Fatal(err)
	}
	pool, err := wire.Encode(hardware, wire.Options{Driver: driver, Offer: offer})
	if err != nil {
		t.Fatal(err)
	}
	var list []*resourceapi.ResourceSlice
	for i, s := range pool.Slices {
		list = append(list, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &node, Devices: s.Devices, SharedCounters: s.SharedCounters,
				Pool: resourceapi.ResourcePool{Name: pool.Name, Generation: generation, ResourceSliceCount: int64(len(pool.Slices))},
			},
		})
	}
	return list
}

// request requests this number of devices of the class.
func request(class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{
		Name:    fmt.Sprintf("r%d", count),
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count},
	}
}

// claim requests the devices of the requests, which get names.
func claim(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	for i := range requests {
		requests[i].Name = fmt.Sprintf("r%d", i)
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
}

// pod returns a pod of the default profile with the claims.
func pod(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, name := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: &name})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: name})
	}
	return p
}

// wants returns a pod that requests one of the extended resource.
func wants(name string, resourceName corev1.ResourceName) *corev1.Pod {
	p := pod(name)
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{resourceName: resource.MustParse("1")}
	return p
}

// run creates a claim for so many devices of the class and a pod with it.
func run(t *testing.T, name, class string, count int64) {
	t.Helper()
	mustCreate(t, claim(name, request(class, count)), pod(name, name))
}

// bound waits until so many of the pods have a node.
func bound(t *testing.T, pods int) {
	t.Helper()
	lister := shared.informers.Core().V1().Pods().Lister().Pods(namespace)
	eventually(t, func(context.Context) error {
		list, err := lister.List(labels.Everything())
		if err != nil {
			return err
		}
		have := 0
		var missing []string
		for _, p := range list {
			if p.Spec.NodeName != "" {
				have++
				continue
			}
			missing = append(missing, p.Name+conditionOf(p))
		}
		if have != pods {
			slices.Sort(missing)
			return fmt.Errorf("%d pods are bound, want %d; waiting: %q", have, pods, missing)
		}
		return nil
	})
}

// conditionOf returns why the pod has no node.
func conditionOf(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return ": " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

// clearAll deletes all pods and claims and waits until they are gone.
func clearAll(t *testing.T) {
	t.Helper()
	if err := emptied(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// emptied deletes all pods and claims and waits until they are gone, for the tests' informers too.
func emptied(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	pods, claims := shared.Client.CoreV1().Pods(namespace), shared.Client.ResourceV1().ResourceClaims(namespace)
	if err := errors.Join(pods.DeleteCollection(ctx, now, metav1.ListOptions{}), claims.DeleteCollection(ctx, now, metav1.ListOptions{})); err != nil {
		return err
	}
	store := shared.informers.Core().V1().Pods().Informer().GetStore()
	return harness.Poll(ctx, func(ctx context.Context) error {
		left, err := claims.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(left.Items) > 0 || len(store.List()) > 0 {
			return fmt.Errorf("%d claims and %d pods are left", len(left.Items), len(store.List()))
		}
		return nil
	})
}
