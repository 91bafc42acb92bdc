// Package memory is an API server within one process: the objects that the scheduler reads and writes
// while it binds pods are kept as Go objects, without encoding for the network, so that almost all of the
// remaining work is the scheduler's own. Nothing is validated, and all other kinds are empty.
package memory

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	typedresourcev1 "k8s.io/client-go/kubernetes/typed/resource/v1"
)

// Content is the initial content.
type Content struct {
	Nodes   []*corev1.Node
	Slices  []resourceapi.ResourceSlice
	Claims  []*resourceapi.ResourceClaim
	Classes []*resourceapi.DeviceClass
}

// Client implements the client and its group clients.
type Client struct {
	kubernetes.Interface
	content Content
	pods    *store[*corev1.Pod]
	claims  *store[*resourceapi.ResourceClaim]
}

// New returns a client that serves the content, which must not be modified afterwards.
func New(c Content) *Client {
	var classes []runtime.Object
	for _, class := range c.Classes {
		classes = append(classes, class)
	}
	return &Client{
		Interface: fake.NewClientset(classes...), content: c,
		pods:   newStore[*corev1.Pod](corev1.Resource("pods")),
		claims: newStore(resourceapi.Resource("resourceclaims"), c.Claims...),
	}
}

// IsWatchListSemanticsUnSupported makes informers list and then watch.
func (c *Client) IsWatchListSemanticsUnSupported() bool { return true }

// CreatePod creates a pod.
func (c *Client) CreatePod(pod *corev1.Pod) { c.pods.put(pod) }

// CreateClaim creates a claim.
func (c *Client) CreateClaim(claim *resourceapi.ResourceClaim) { c.claims.put(claim) }

// CoreV1 has pods and nodes.
func (c *Client) CoreV1() typedcorev1.CoreV1Interface { return core{c.Interface.CoreV1(), c} }

type core struct {
	typedcorev1.CoreV1Interface
	client *Client
}

func (c core) Pods(namespace string) typedcorev1.PodInterface {
	return pods{c.CoreV1Interface.Pods(namespace), c.client.pods, namespace}
}

func (c core) Nodes() typedcorev1.NodeInterface {
	return nodes{c.CoreV1Interface.Nodes(), c.client.content.Nodes}
}

type nodes struct {
	typedcorev1.NodeInterface
	all []*corev1.Node
}

func (n nodes) List(context.Context, metav1.ListOptions) (*corev1.NodeList, error) {
	list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "0"}}
	for _, node := range n.all {
		list.Items = append(list.Items, *node)
	}
	return list, nil
}

type pods struct {
	typedcorev1.PodInterface
	store     *store[*corev1.Pod]
	namespace string
}

func (p pods) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	all, version := p.store.all()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, pod := range all {
		list.Items = append(list.Items, *pod)
	}
	return list, nil
}

func (p pods) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return p.store.watch(ctx, o.ResourceVersion)
}

// Patch supports patches of a status without lists that are merged.
func (p pods) Patch(_ context.Context, name string, _ types.PatchType, patch []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	known, err := p.store.get(types.NamespacedName{Namespace: p.namespace, Name: name})
	if err != nil {
		return nil, err
	}
	pod := known.DeepCopy()
	if err := json.Unmarshal(patch, pod); err != nil {
		return nil, err
	}
	return p.store.put(pod), nil
}

func (p pods) Bind(_ context.Context, b *corev1.Binding, _ metav1.CreateOptions) error {
	known, err := p.store.get(types.NamespacedName{Namespace: p.namespace, Name: b.Name})
	if err != nil {
		return err
	}
	pod := known.DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	p.store.put(pod)
	return nil
}

// EventsV1 discards all events.
func (c *Client) EventsV1() typedeventsv1.EventsV1Interface {
	return occurrences{c.Interface.EventsV1()}
}

type occurrences struct {
	typedeventsv1.EventsV1Interface
}

func (o occurrences) Events(namespace string) typedeventsv1.EventInterface {
	return discarded{o.EventsV1Interface.Events(namespace)}
}

type discarded struct{ typedeventsv1.EventInterface }

func (f discarded) Create(_ context.Context, e *eventsv1.Event, _ metav1.CreateOptions) (*eventsv1.Event, error) {
	return e, nil
}

// ResourceV1 has slices and claims.
func (c *Client) ResourceV1() typedresourcev1.ResourceV1Interface {
	return devices{c.Interface.ResourceV1(), c}
}

type devices struct {
	typedresourcev1.ResourceV1Interface
	client *Client
}

func (d devices) ResourceSlices() typedresourcev1.ResourceSliceInterface {
	return published{d.ResourceV1Interface.ResourceSlices(), d.client.content.Slices}
}

func (d devices) ResourceClaims(namespace string) typedresourcev1.ResourceClaimInterface {
	return claims{d.ResourceV1Interface.ResourceClaims(namespace), d.client.claims, namespace}
}

type published struct {
	typedresourcev1.ResourceSliceInterface
	all []resourceapi.ResourceSlice
}

func (p published) List(context.Context, metav1.ListOptions) (*resourceapi.ResourceSliceList, error) {
	return &resourceapi.ResourceSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "0"}, Items: p.all}, nil
}

type claims struct {
	typedresourcev1.ResourceClaimInterface
	store     *store[*resourceapi.ResourceClaim]
	namespace string
}

func (c claims) List(context.Context, metav1.ListOptions) (*resourceapi.ResourceClaimList, error) {
	all, version := c.store.all()
	list := &resourceapi.ResourceClaimList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, claim := range all {
		list.Items = append(list.Items, *claim)
	}
	return list, nil
}

func (c claims) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return c.store.watch(ctx, o.ResourceVersion)
}

func (c claims) Get(_ context.Context, name string, _ metav1.GetOptions) (*resourceapi.ResourceClaim, error) {
	return c.store.get(types.NamespacedName{Namespace: c.namespace, Name: name})
}

func (c claims) Update(_ context.Context, claim *resourceapi.ResourceClaim, _ metav1.UpdateOptions) (*resourceapi.ResourceClaim, error) {
	return c.store.put(claim.DeepCopy()).DeepCopy(), nil
}

func (c claims) UpdateStatus(ctx context.Context, claim *resourceapi.ResourceClaim, o metav1.UpdateOptions) (*resourceapi.ResourceClaim, error) {
	return c.Update(ctx, claim, o)
}
