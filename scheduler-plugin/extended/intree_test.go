package extended_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/tessera-gpu/tessera/scheduler-plugin/extended"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
)

// manager is the scheduler's manager of claims and devices: classes, and the claims that it has observed or assumed.
type manager struct {
	fwk.SharedDRAManager
	resolver *extendedresourcecache.ExtendedResourceCache
	classes  []*resourceapi.DeviceClass
	claims   []*resourceapi.ResourceClaim
}

func (m *manager) DeviceClassResolver() fwk.DeviceClassResolver { return m.resolver }
func (m *manager) DeviceClasses() fwk.DeviceClassLister         { return classLister{m: m} }
func (m *manager) ResourceClaims() fwk.ResourceClaimTracker     { return tracker{m: m} }

type classLister struct {
	fwk.DeviceClassLister
	m *manager
}

func (l classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, c := range l.m.classes {
		if c.Name == name {
			return c, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}

type tracker struct {
	fwk.ResourceClaimTracker
	m *manager
}

func (t tracker) Get(namespace, name string) (*resourceapi.ResourceClaim, error) {
	for _, c := range t.m.claims {
		if c.Namespace == namespace && c.Name == name {
			return c, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), name)
}

func (tracker) GetPendingAllocation(types.UID) *resourceapi.AllocationResult { return nil }

// addClass adds a class of all devices of a driver, which backs the resource unless that is empty. A class always backs
// its implicit resource, deviceclass.resource.kubernetes.io/NAME.
func (m *manager) addClass(name, driver string, backed corev1.ResourceName) {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	expression := fmt.Sprintf("device.driver == %q", driver)
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	if backed != "" {
		text := string(backed)
		class.Spec.ExtendedResourceName = &text
	}
	m.classes = append(m.classes, class)
	m.resolver.OnAdd(class, true)
}

// deleteClasses removes all classes.
func (m *manager) deleteClasses() {
	for _, class := range m.classes {
		m.resolver.OnDelete(class)
	}
	m.classes = nil
}

// The extended resources of the tests. The first two are backed by classes; a device plugin can offer all of them.
const (
	gpus     = corev1.ResourceName("nvidia.com/gpu")
	nics     = corev1.ResourceName("nic.example.com/port")
	fpgas    = corev1.ResourceName("fpga.example.com/card")
	implicit = corev1.ResourceName(resourceapi.ResourceDeviceClassPrefix + "gpu")
	unknown  = corev1.ResourceName(resourceapi.ResourceDeviceClassPrefix + "none")
)

// newManager returns a manager with classes for GPUs and for the network cards of another driver.
func newManager() *manager {
	m := &manager{resolver: extendedresourcecache.NewExtendedResourceCache(klog.Background())}
	m.addClass("gpu", "gpu.tessera.dev", gpus)
	m.addClass("nic", "nic.example.com", nics)
	return m
}

// newResources returns the extended resources of the manager and the informer's store of claims.
func newResources(t *testing.T, m *manager, enabled bool) (*extended.Resources, cache.Indexer) {
	t.Helper()
	informer := claimInformer()
	r, err := extended.NewResources(m, informer, enabled)
	if err != nil {
		t.Fatal(err)
	}
	return r, informer.GetIndexer()
}

// claimInformer returns an informer of claims that is never started: tests add to its store.
func claimInformer() cache.SharedIndexInformer {
	return informers.NewSharedInformerFactory(fake.NewClientset(), 0).Resource().V1().ResourceClaims().Informer()
}

// list is what a container requests.
type list map[corev1.ResourceName]string

// container returns a container with the requests. Quantities may be invalid for the API server.
func container(name string, requests list) corev1.Container {
	c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
	for resourceName, text := range requests {
		c.Resources.Requests[resourceName] = resource.MustParse(text)
	}
	return c
}

// sidecar returns an init container that keeps running.
func sidecar(name string, requests list) corev1.Container {
	c := container(name, requests)
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func newPod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "uid-of-a"}, Spec: corev1.PodSpec{Containers: containers}}
}

// withInit adds init containers to the pod.
func withInit(pod *corev1.Pod, containers ...corev1.Container) *corev1.Pod {
	pod.Spec.InitContainers = containers
	return pod
}

// newNode returns a node on which device plugins offer the resources.
func newNode(name string, offered list) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
	for resourceName, text := range offered {
		n.Status.Allocatable[resourceName] = resource.MustParse(text)
	}
	return n
}

func infoOf(n *corev1.Node) fwk.NodeInfo {
	info := framework.NewNodeInfo()
	info.SetNode(n)
	return info
}

// handle is the handle of a scheduler with a client and informers that are not started.
type handle struct {
	fwk.Handle
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
}

func (h handle) ClientSet() kubernetes.Interface                        { return h.client }
func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.informers }
func (handle) ProfileName() string                                      { return "default" }

// inTree is the plugin DynamicResources of kube-scheduler, with its feature DRAExtendedResource.
type inTree struct {
	pool *intree.Pool
}

func newInTree(t *testing.T, m *manager) *inTree {
	t.Helper()
	client := fake.NewClientset()
	h := handle{client: client, informers: informers.NewSharedInformerFactory(client, 0)}
	on := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	pool, err := intree.NewPool(t.Context(), &schedulerconfig.DynamicResourcesArgs{}, h, on, m)
	if err != nil {
		t.Fatal(err)
	}
	return &inTree{pool}
}

// errNone is returned if the in-tree plugin has nothing to allocate for the pod.
var errNone = errors.New("the in-tree plugin finds no extended resources")

// claim returns the claim that the in-tree plugin allocates for the pod on the node, and nil if it needs none there. An
// error is its reason for a node that it rejects, or errNone. The node has 32 GPUs and 32 network cards, and all are
// free. observed are the claims in the cluster.
func (i *inTree) claim(t *testing.T, pod *corev1.Pod, node *corev1.Node, observed ...*resourceapi.ResourceClaim) (*resourceapi.ResourceClaim, error) {
	t.Helper()
	capture := &intree.Capture{}
	scope := intree.Scope{Claims: observed, Capture: capture}
	for _, driver := range []string{"gpu.tessera.dev", "nic.example.com"} {
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node.Name, Pool: resourceapi.ResourcePool{Name: node.Name, Generation: 1, ResourceSliceCount: 1},
		}}
		for n := range resourceapi.AllocationResultsMaxSize {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("device-%d", n)})
		}
		scope.Slices = append(scope.Slices, slice)
	}
	status := i.pool.With("", scope, func(p *intree.Instance) *fwk.Status {
		state := framework.NewCycleState()
		if _, status := p.PreFilter(t.Context(), state, pod, nil); !status.IsSuccess() {
			return status
		}
		if status := p.Filter(t.Context(), state, pod, infoOf(node)); !status.IsSuccess() {
			return status
		}
		return p.Reserve(t.Context(), state, pod, node.Name)
	})
	switch {
	case status.IsSkip():
		return nil, errNone
	case !status.IsSuccess():
		return nil, status.AsError()
	case len(capture.Claims) == 0:
		return nil, nil
	}
	return capture.Claims[0], nil
}
