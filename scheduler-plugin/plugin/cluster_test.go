package plugin_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/testing/defaults"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

const driver = "gpu.tessera.dev"

// cluster is an API server without etcd and a scheduler that runs the production code, with our plugin or the in-tree
// one.
type cluster struct {
	tb     testing.TB
	ctx    context.Context
	client *fake.Clientset
	plugin *plugin.Factory
}

// newCluster starts a scheduler on the objects of the API server.
func newCluster(tb testing.TB, args string, objects ...runtime.Object) *cluster {
	tb.Helper()
	return start(tb, ours(args), nil, objects...)
}

// newStockCluster starts a scheduler with the in-tree plugin.
func newStockCluster(tb testing.TB, objects ...runtime.Object) *cluster {
	tb.Helper()
	return start(tb, stock(), nil, objects...)
}

// stock is the default profile.
func stock() schedulerconfig.KubeSchedulerProfile {
	return schedulerconfig.KubeSchedulerProfile{SchedulerName: corev1.DefaultSchedulerName, Plugins: defaults.PluginsV1.DeepCopy(), PluginConfig: defaults.PluginConfigsV1}
}

// ours is the default profile with our plugin instead of the in-tree one.
func ours(args string) schedulerconfig.KubeSchedulerProfile {
	plugins := defaults.PluginsV1.DeepCopy()
	plugins.MultiPoint.Disabled = append(plugins.MultiPoint.Disabled, schedulerconfig.Plugin{Name: "DynamicResources"})
	var kept []schedulerconfig.Plugin
	for _, p := range plugins.MultiPoint.Enabled {
		if p.Name != "DynamicResources" {
			kept = append(kept, p)
		}
	}
	plugins.MultiPoint.Enabled = append(kept, schedulerconfig.Plugin{Name: plugin.Name, Weight: 10})
	plugins.PostFilter.Enabled = []schedulerconfig.Plugin{{Name: plugin.Name}}
	return schedulerconfig.KubeSchedulerProfile{
		SchedulerName: corev1.DefaultSchedulerName,
		Plugins:       plugins,
		PluginConfig: append([]schedulerconfig.PluginConfig{
			{Name: plugin.Name, Args: &runtime.Unknown{Raw: []byte(args), ContentType: runtime.ContentTypeYAML}},
		}, defaults.PluginConfigsV1...),
	}
}

func start(tb testing.TB, profile schedulerconfig.KubeSchedulerProfile, others frameworkruntime.Registry, objects ...runtime.Object) *cluster {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	// The alternative, which tracks managed fields, builds its type mapping at every call.
	c := &cluster{tb: tb, ctx: ctx, client: fake.NewSimpleClientset(), plugin: plugin.NewFactory()}
	c.client.PrependReactor("*", "*", (&versions{tracker: c.client.Tracker()}).react)
	for _, object := range objects {
		c.create(object)
	}
	factory := informers.NewSharedInformerFactory(c.client, 0)
	registry := frameworkruntime.Registry{plugin.Name: c.plugin.New}
	maps.Copy(registry, others)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.client.EventsV1()})
	s, err := scheduler.New(ctx, c.client, factory, nil, func(name string) events.EventRecorderLogger {
		return broadcaster.NewRecorder(nil, name)
	}, scheduler.WithProfiles(profile), scheduler.WithFrameworkOutOfTreeRegistry(registry), scheduler.WithPodInitialBackoffSeconds(0), scheduler.WithPodMaxBackoffSeconds(0))
	if err != nil {
		tb.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	return c
}

// versions assigns UIDs and resourceVersions to objects as an API server does, rejects conflicting updates, and binds
// pods.
type versions struct {
	tracker clienttesting.ObjectTracker
	mu      sync.Mutex
	last    int
}

func (v *versions) react(action clienttesting.Action) (bool, runtime.Object, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a, ok := action.(clienttesting.UpdateAction)
	switch {
	case !ok:
	case action.GetVerb() == "update":
		return v.updated(a)
	case action.GetVerb() == "create" && a.GetSubresource() == "binding":
		return true, nil, v.bind(a)
	case action.GetVerb() == "create":
		v.created(a.GetObject())
	}
	return false, nil, nil
}

func (v *versions) next() string {
	v.last++
	return strconv.Itoa(v.last)
}

func (v *versions) created(object runtime.Object) {
	o, ok := object.(metav1.Object)
	if !ok {
		return
	}
	o.SetResourceVersion(v.next())
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-" + o.GetResourceVersion()))
	}
	if o.GetName() == "" {
		o.SetName(o.GetGenerateName() + o.GetResourceVersion())
	}
}

func (v *versions) updated(a clienttesting.UpdateAction) (bool, runtime.Object, error) {
	o, ok := a.GetObject().(metav1.Object)
	if !ok {
		return false, nil, nil
	}
	known, err := v.tracker.Get(a.GetResource(), a.GetNamespace(), o.GetName())
	if err != nil {
		return true, nil, err
	}
	if k, ok := known.(metav1.Object); ok && k.GetResourceVersion() != o.GetResourceVersion() {
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), o.GetName(), fmt.Errorf("have version %s, got %s", k.GetResourceVersion(), o.GetResourceVersion()))
	}
	o.SetResourceVersion(v.next())
	return false, nil, nil
}

func (v *versions) bind(a clienttesting.UpdateAction) error {
	b, ok := a.GetObject().(*corev1.Binding)
	if !ok {
		return fmt.Errorf("bind: got a %T", a.GetObject())
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	known, err := v.tracker.Get(pods, b.Namespace, b.Name)
	if err != nil {
		return err
	}
	pod, ok := known.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("bind: have a %T", known)
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeName, pod.ResourceVersion = b.Target.Name, v.next()
	return v.tracker.Update(pods, pod, b.Namespace)
}

// create creates the object in the API server.
func (c *cluster) create(object runtime.Object) {
	c.tb.Helper()
	var err error
	object = object.DeepCopyObject()
	switch o := object.(type) {
	case *corev1.Node:
		_, err = c.client.CoreV1().Nodes().Create(c.ctx, o, metav1.CreateOptions{})
	case *corev1.Pod:
		_, err = c.client.CoreV1().Pods(o.Namespace).Create(c.ctx, o, metav1.CreateOptions{})
	case *resourceapi.ResourceSlice:
		_, err = c.client.ResourceV1().ResourceSlices().Create(c.ctx, o, metav1.CreateOptions{})
	case *resourceapi.DeviceTaintRule:
		_, err = c.client.ResourceV1().DeviceTaintRules().Create(c.ctx, o, metav1.CreateOptions{})
	case *resourceapi.DeviceClass:
		_, err = c.client.ResourceV1().DeviceClasses().Create(c.ctx, o, metav1.CreateOptions{})
	case *schedulingapi.PodGroup:
		_, err = c.client.SchedulingV1beta1().PodGroups(o.Namespace).Create(c.ctx, o, metav1.CreateOptions{})
	case *resourceapi.ResourceClaim:
		_, err = c.client.ResourceV1().ResourceClaims(o.Namespace).Create(c.ctx, o, metav1.CreateOptions{})
	default:
		err = fmt.Errorf("create a %T", object)
	}
	if err != nil {
		c.tb.Fatal(err)
	}
}

// eventually waits until the condition is true.
func (c *cluster) eventually(what string, holds func() bool) {
	c.tb.Helper()
	if err := wait.PollUntilContextTimeout(c.ctx, 2*time.Millisecond, harness.Patience, true, func(context.Context) (bool, error) { return holds(), nil }); err != nil {
		c.tb.Fatalf("%s: not so after %s", what, harness.Patience)
	}
}

// pod returns the current pod.
func (c *cluster) pod(name string) *corev1.Pod {
	c.tb.Helper()
	pod, err := c.client.CoreV1().Pods("default").Get(c.ctx, name, metav1.GetOptions{})
	if err != nil {
		c.tb.Fatal(err)
	}
	return pod
}

// bound waits until the pod is bound and returns its node.
func (c *cluster) bound(name string) string {
	c.tb.Helper()
	var node string
	c.eventually("pod "+name+" is bound", func() bool {
		node = c.pod(name).Spec.NodeName
		return node != ""
	})
	return node
}

// pending waits until the scheduler has reported why the pod cannot run, and returns the message.
func (c *cluster) pending(name string) string {
	c.tb.Helper()
	var message string
	c.eventually("pod "+name+" is refused", func() bool {
		pod := c.pod(name)
		if pod.Spec.NodeName != "" {
			c.tb.Fatalf("pod %s is bound to %s", name, pod.Spec.NodeName)
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				message = condition.Message
			}
		}
		return message != ""
	})
	return message
}

// claim returns the current claim.
func (c *cluster) claim(name string) *resourceapi.ResourceClaim {
	c.tb.Helper()
	claim, err := c.client.ResourceV1().ResourceClaims("default").Get(c.ctx, name, metav1.GetOptions{})
	if err != nil {
		c.tb.Fatal(err)
	}
	return claim
}

// devices returns the names of the devices that the claim holds.
func devices(claim *resourceapi.ResourceClaim) []string {
	var names []string
	if claim.Status.Allocation != nil {
		for _, r := range claim.Status.Allocation.Devices.Results {
			names = append(names, r.Device)
		}
	}
	return names
}

// newNode returns a node with room for many pods.
func newNode(name string) *corev1.Node {
	room := corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("200")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
}

// published returns the ResourceSlices of a machine.
func published(tb testing.TB, machine, node string) []*resourceapi.ResourceSlice {
	tb.Helper()
	n := gputest.Node(tb, machine)
	n.Name = node
	for i := range n.GPUs {
		n.GPUs[i].UUID = catalog.UUID(node, i)
	}
	return publishedOf(tb, n)
}

// publishedOf returns the ResourceSlices of the node.
func publishedOf(tb testing.TB, n gpu.Node) []*resourceapi.ResourceSlice {
	tb.Helper()
	return publishedWith(tb, n, false)
}

// publishedWith returns the ResourceSlices of the node, with all attributes if full.
func publishedWith(tb testing.TB, n gpu.Node, full bool) []*resourceapi.ResourceSlice {
	tb.Helper()
	pool, err := wire.Encode(n, wire.Options{Driver: driver, Full: full, Offer: gpu.Offer{
		Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, Shares: 10,
	}})
	if err != nil {
		tb.Fatal(err)
	}
	var list []*resourceapi.ResourceSlice
	for i, s := range pool.Slices {
		list = append(list, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02x", n.Name, i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &n.Name, SharedCounters: s.SharedCounters, Devices: s.Devices,
				Pool: resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			},
		})
	}
	return list
}

// machines returns count nodes of the machine, named node-0 and so on, with their ResourceSlices.
func machines(tb testing.TB, machine string, count int) []runtime.Object {
	tb.Helper()
	objects := classes()
	for i := range count {
		name := fmt.Sprintf("node-%d", i)
		objects = append(objects, newNode(name))
		for _, s := range published(tb, machine, name) {
			objects = append(objects, s)
		}
	}
	return objects
}

// classes are the DeviceClasses of the product by shape, and one for each MIG profile named in tests.
func classes() []runtime.Object {
	var list []runtime.Object
	add := func(name, extended, expression string) {
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
		if extended != "" {
			class.Spec.ExtendedResourceName = &extended
		}
		list = append(list, class)
	}
	of := func(shape string) string {
		return fmt.Sprintf("device.driver == %q && device.attributes[%q].type == %q", driver, driver, shape)
	}
	add("gpu", "nvidia.com/gpu", of("gpu"))
	add("timeshare", "", of("timeshare"))
	add("monitor", "", of("monitor"))
	for _, profile := range []string{"1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"} {
		add(profile, "nvidia.com/mig-"+profile, fmt.Sprintf("%s && device.attributes[%q].profile == %q", of("mig"), driver, profile))
	}
	add("nic", "", `device.driver == "nic.example.com"`)
	return list
}

// claimFor returns a claim for count devices of the class.
func claimFor(name, class string, count int64) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count},
		}}}},
	}
}

// newPod returns a pod with the claims.
func newPod(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: corev1.DefaultSchedulerName,
			Containers:    []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}}},
		},
	}
	for _, claim := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
	}
	return pod
}

// run creates a pod that requests count devices of the class, with a claim of the same name.
func (c *cluster) run(name, class string, count int64) {
	c.tb.Helper()
	c.create(claimFor(name, class, count))
	c.create(newPod(name, name))
}
