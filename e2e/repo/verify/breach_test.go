package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	nodeauthorizer "k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// campaign submits generated writes of the identities of node1 to one policy of the chart.
type campaign struct {
	policy   policyProgram
	name     string
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	// accepted are harmful writes that the policy permits.
	accepted []string
	// harmful counts the harmful writes. catches has, for each validation, a harmful write that no other validation refuses.
	harmful int
	catches map[int]string
}

func newCampaign(t *testing.T, policy string, resource schema.GroupVersionResource, kind schema.GroupVersionKind) *campaign {
	t.Helper()
	found := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered(t, "--set", "imagePullSecrets={registry}"), policy)
	return &campaign{policy: newPolicy(t, found), name: policy, resource: resource, kind: kind, catches: map[int]string{}}
}

// attack is one write by an identity of node1.
type attack struct {
	who              user.Info
	operation        admission.Operation
	subresource      string
	name             string
	object, previous runtime.Object
}

// submit evaluates the policy for the write.
func (c *campaign) submit(t *testing.T, description string, a attack, harmful bool) {
	t.Helper()
	to := target{resource: c.resource, kind: c.kind, subresource: a.subresource, name: a.name}
	description = fmt.Sprintf("%s %s %s: %s", a.who.GetName(), a.operation, a.subresource, description)
	failing := c.policy.failing(t, to.attributes(a.who, a.operation, a.object, a.previous))
	if !harmful {
		return
	}
	c.harmful++
	switch len(failing) {
	case 0:
		c.accepted = append(c.accepted, description)
	case 1:
		c.catches[failing[0]] = description
	}
}

// permit checks that the policy accepts a write that the component needs.
func (c *campaign) permit(t *testing.T, a attack) {
	t.Helper()
	to := target{resource: c.resource, kind: c.kind, subresource: a.subresource, name: a.name}
	if failing := c.policy.failing(t, to.attributes(a.who, a.operation, a.object, a.previous)); len(failing) > 0 {
		t.Errorf("%s refuses %s %s %s by validation %v", c.name, a.who.GetName(), a.operation, a.subresource, failing)
	}
}

// judge reports the harmful writes that the policy accepts, and the validations without which it accepts no more of them: each mutant of the policy that
// lacks one validation must be detected.
func (c *campaign) judge(t *testing.T, least int) {
	t.Helper()
	for _, accepted := range c.accepted[:min(20, len(c.accepted))] {
		t.Errorf("%s accepts %s", c.name, accepted)
	}
	if c.harmful < least {
		t.Errorf("%s: %d harmful writes, want at least %d: the generator has lost some", c.name, c.harmful, least)
	}
	policy := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered(t), c.name)
	for i, v := range policy.Spec.Validations {
		if c.catches[i] == "" {
			t.Errorf("%s without validation %d is not detected: %s", c.name, i, v.Expression)
		}
	}
	t.Logf("%s: 0 of %d harmful writes must be accepted: %d are; %d of %d mutants detected", c.name, c.harmful, len(c.accepted), len(c.catches), len(policy.Spec.Validations))
}

// TestNodeCannotWriteResourceSlicesOfOthers submits ResourceSlices with every field changed, as agent and as kubelet of node1.
func TestNodeCannotWriteResourceSlicesOfOthers(t *testing.T) {
	t.Parallel()
	c := newCampaign(t, "resourceslices.gpu.tessera.dev", resourceapi.SchemeGroupVersion.WithResource("resourceslices"), resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"))
	node := "node1"
	base := slice(v1alpha1.DriverName, &node)
	for _, who := range []user.Info{agent, kubelet} {
		c.permit(t, attack{who: who, operation: admission.Create, object: base})
		c.permit(t, attack{who: who, operation: admission.Update, object: base, previous: base})
		c.permit(t, attack{who: who, operation: admission.Delete, previous: base})
	}
	texts := []string{planted, "node2", wire.PoolName("node2", v1alpha1.DriverName), wire.PoolName("node1", v1alpha1.NVIDIADriverName), v1alpha1.NVIDIADriverName, ""}
	mutations(t, base, texts, func(field string, s *resourceapi.ResourceSlice) {
		for _, who := range []user.Info{agent, kubelet, unbound} {
			// NodeRestriction and the policies of other drivers restrict kubelet's writes of those.
			foreign := s.Spec.Driver != v1alpha1.DriverName
			notOwn := s.Spec.NodeName == nil || *s.Spec.NodeName != node
			deletes := who == unbound || notOwn || foreign
			writes := deletes || s.Spec.Pool.Name != wire.PoolName(node, s.Spec.Driver)
			if who == kubelet && foreign {
				deletes, writes = false, false
			}
			c.submit(t, field, attack{who: who, operation: admission.Create, object: s}, writes)
			// Node, driver and pool are immutable, so that the previous object has the same.
			c.submit(t, field, attack{who: who, operation: admission.Update, object: s, previous: s}, writes)
			c.submit(t, field, attack{who: who, operation: admission.Delete, previous: s}, deletes)
		}
	})
	c.judge(t, 500)
}

// TestNodeCannotReachObjectsThroughPods submits pods with every field changed, as the agent of node1. What kubelet may read is computed by the node
// authorizer of Kubernetes, from its graph of the pods that the policy accepts.
func TestNodeCannotReachObjectsThroughPods(t *testing.T) {
	t.Parallel()
	c := newCampaign(t, "mps-daemons.gpu.tessera.dev", corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"))
	base := daemonPod(func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}} })
	c.permit(t, attack{who: agent, operation: admission.Create, object: base})
	c.permit(t, attack{who: agent, operation: admission.Delete, previous: base})
	reached := map[string]bool{}
	mutations(t, base, []string{planted, "node2", "tessera-node", ""}, func(field string, pod *corev1.Pod) {
		if strings.HasPrefix(field, ".Status") { // the API server discards the status of a new pod
			return
		}
		pod.Name, pod.Namespace = base.Name, base.Namespace // of the request
		foreign := pod.Spec.NodeName != "node1" || pod.Labels["app.kubernetes.io/name"] != "tessera-mps"
		account := pod.Spec.ServiceAccountName != "" && pod.Spec.ServiceAccountName != "default"
		token := pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken
		objects := reachable(t, pod)
		for _, object := range objects {
			reached[object] = true
		}
		c.submit(t, field, attack{who: agent, operation: admission.Create, object: pod}, foreign || account || token || len(objects) > 0)
		c.submit(t, field, attack{who: agent, operation: admission.Delete, previous: pod}, foreign)
		if !strings.HasPrefix(field, ".Spec.Containers") && !strings.HasPrefix(field, ".Spec.Volumes") {
			c.submit(t, field, attack{who: unbound, operation: admission.Create, object: pod}, true)
			c.submit(t, field, attack{who: agent, operation: admission.Update, object: pod, previous: base}, true)
		}
	})
	for _, subresource := range []string{"binding", "ephemeralcontainers", "eviction", "exec", "status", "resize"} {
		for _, operation := range []admission.Operation{admission.Create, admission.Update} {
			c.submit(t, "its own pod", attack{who: agent, operation: operation, subresource: subresource, object: base, previous: base}, true)
		}
	}
	// Without a policy a pod gives access to all these types.
	for _, object := range []string{"secrets", "configmaps", "persistentvolumeclaims", "resourceclaims"} {
		if !reached[object] {
			t.Errorf("no generated pod reaches %s", object)
		}
	}
	c.judge(t, 5000)
}

// reachable returns the types of objects that the pod gives the kubelet of its node access to, without what pods of MPS daemons need.
func reachable(t *testing.T, pod *corev1.Pod) []string {
	t.Helper()
	if pod.Spec.NodeName == "" {
		return nil
	}
	graph := nodeauthorizer.NewGraph()
	graph.AddPod(pod)
	judge := nodeauthorizer.NewAuthorizer(graph, nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules())
	on := &user.DefaultInfo{Name: "system:node:" + pod.Spec.NodeName, Groups: []string{user.NodesGroup}}
	var found []string
	for _, of := range []schema.GroupResource{{Resource: "secrets"}, {Resource: "configmaps"}, {Resource: "persistentvolumeclaims"}, {Group: resourceapi.GroupName, Resource: "resourceclaims"}} {
		// The claim of an ephemeral volume has the name of the pod and of the volume.
		for _, name := range []string{planted, "node2", "tessera-node", pod.Name + "-", pod.Name + "-" + planted, pod.Name + "-shm"} {
			decision, _, err := judge.Authorize(t.Context(), authorizer.AttributesRecord{
				User: on, Verb: "get", Namespace: pod.Namespace, APIGroup: of.Group, APIVersion: "v1", Resource: of.Resource, Name: name, ResourceRequest: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			if decision == authorizer.DecisionAllow && !slices.Contains(found, of.Resource) {
				found = append(found, of.Resource)
			}
		}
	}
	return found
}

// TestNodeCannotWriteGPUNodesOfOthers submits GPUNodes with every field changed, as the agent and the discovery of node1.
func TestNodeCannotWriteGPUNodesOfOthers(t *testing.T) {
	t.Parallel()
	c := newCampaign(t, "gpunodes.gpu.tessera.dev", v1alpha1.GroupVersion.WithResource("gpunodes"), v1alpha1.GroupVersion.WithKind("GPUNode"))
	discovery, node, nowhere := accountOf("tessera-discovery", "node1"), accountOf("tessera-node", "node1"), accountOf("tessera-discovery", "")
	base := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Spec: v1alpha1.GPUNodeSpec{AgentPool: "default"}}
	base.Status = v1alpha1.GPUNodeStatus{Phase: v1alpha1.PhaseReady, Hardware: &v1alpha1.HardwareStatus{BootID: "one"}, Agent: &v1alpha1.AgentStatus{PodUID: "one"}}
	bare := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	c.permit(t, attack{who: discovery, operation: admission.Create, name: "node1", object: fieldsOf(t, bare)})
	before := fieldsOf(t, base)
	for _, who := range []user.Info{discovery, node, nowhere} {
		for _, name := range []string{"node1", "node2"} {
			c.submit(t, "any", attack{who: who, operation: admission.Delete, name: name, previous: before}, true)
		}
	}
	submit := func(field string, changed *v1alpha1.GPUNode, from *v1alpha1.GPUNode) {
		after, previous := fieldsOf(t, changed), fieldsOf(t, from)
		part, _, _ := strings.Cut(strings.TrimPrefix(field, ".Status."), ".")
		part, _, _ = strings.Cut(part, "=")
		changes := func(part string) bool {
			now, _, _ := unstructured.NestedFieldNoCopy(after.Object, "status", part)
			old, _, _ := unstructured.NestedFieldNoCopy(previous.Object, "status", part)
			return fmt.Sprint(now) != fmt.Sprint(old)
		}
		spec := fmt.Sprint(after.Object["spec"]) != fmt.Sprint(previous.Object["spec"])
		labels := len(changed.Labels)+len(changed.Annotations)+len(changed.Finalizers) > 0
		status := strings.HasPrefix(field, ".Status")
		for _, name := range []string{"node1", "node2"} {
			other := name != "node1"
			for _, who := range []user.Info{discovery, node, nowhere} {
				own := map[user.Info]string{discovery: "Hardware", nowhere: "Hardware", node: "Agent"}[who]
				foreign := other || who == nowhere
				c.submit(t, field, attack{who: who, operation: admission.Update, subresource: "status", name: name, object: after, previous: previous},
					foreign || status && part != own && (part == "Hardware" && changes("hardware") || part == "Agent" && changes("agent") || part != "Hardware" && part != "Agent" && changes(jsonName(part))))
				c.submit(t, field, attack{who: who, operation: admission.Update, name: name, object: after, previous: previous}, foreign || who == node || spec || labels)
				c.submit(t, field, attack{who: who, operation: admission.Create, name: name, object: after}, foreign || who == node || !emptySpec(after) || labels)
			}
		}
	}
	mutations(t, base, []string{planted, ""}, func(field string, changed *v1alpha1.GPUNode) {
		changed.Name = "node1"
		submit(field, changed, base)
	})
	mutations(t, bare, []string{planted}, func(field string, changed *v1alpha1.GPUNode) {
		changed.Name = "node1"
		submit(field, changed, bare)
	})
	c.judge(t, 5000)
}

// jsonName returns the name of a field in JSON.
func jsonName(field string) string { return strings.ToLower(field[:1]) + field[1:] }

// emptySpec reports whether the object has no spec, or one without fields.
func emptySpec(object *unstructured.Unstructured) bool {
	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	return len(spec) == 0
}

// fieldsOf returns the object as the API server shows it to policies.
func fieldsOf(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

// TestInstallerPodsCannotReachSecrets submits pods of validations and operations with every field changed, as the installer.
func TestInstallerPodsCannotReachSecrets(t *testing.T) {
	t.Parallel()
	c := newCampaign(t, "installer-pods.gpu.tessera.dev", corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"))
	installer := accountOf("tessera-installer", "")
	for kind, account := range map[string]string{"tessera-validation": "tessera-validation", "tessera-operation": "tessera-driver"} {
		validates := kind == "tessera-validation"
		base := installerPod(kind, account, nil)
		c.permit(t, attack{who: installer, operation: admission.Create, object: base})
		c.permit(t, attack{who: installer, operation: admission.Update, object: base, previous: base})
		mutations(t, base, []string{planted, kind, "tessera-driver", "tessera-installer", ""}, func(field string, pod *corev1.Pod) {
			spec := pod.Spec
			of := pod.Labels["app.kubernetes.io/name"]
			other := of != kind || !strings.HasPrefix(pod.Name, kind+"-")
			rights := spec.ServiceAccountName != account || spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken
			secrets := slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil || v.Projected != nil || v.CSI != nil })
			host := spec.HostNetwork || spec.HostPID || spec.HostIPC || slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
			for _, container := range slices.Concat(spec.Containers, spec.InitContainers) {
				secrets = secrets || len(container.EnvFrom) > 0 || !validates && slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.FieldRef == nil })
				security := container.SecurityContext
				host = host || security != nil && security.Privileged != nil && *security.Privileged
			}
			harmful := other || rights || secrets || validates && host
			c.submit(t, field, attack{who: installer, operation: admission.Create, object: pod}, harmful)
			c.submit(t, field, attack{who: installer, operation: admission.Update, object: pod, previous: base}, harmful)
			if !harmful && len(spec.Containers) > 0 { // the API server refuses pods without containers
				c.permit(t, attack{who: installer, operation: admission.Create, object: pod})
			}
			c.permit(t, attack{who: admin, operation: admission.Create, object: pod})
		})
	}
	c.judge(t, 500)
}

// TestInstallerCannotChangeNodes submits Nodes with every field changed, as the installer.
func TestInstallerCannotChangeNodes(t *testing.T) {
	t.Parallel()
	c := newCampaign(t, "installer-nodes.gpu.tessera.dev", corev1.SchemeGroupVersion.WithResource("nodes"), corev1.SchemeGroupVersion.WithKind("Node"))
	installer := accountOf("tessera-installer", "")
	base := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node1", Labels: map[string]string{"zone": "a", "tessera.dev/ready": "true", "nvidia.com/gpu.present": "true"}, Annotations: map[string]string{"a": "b"},
			Finalizers: []string{"a.example.com/b"}, OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "a"}},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}},
	}
	foreign := func(n *corev1.Node) string {
		labels := maps.Clone(n.Labels)
		maps.DeleteFunc(labels, func(key, _ string) bool {
			return strings.HasPrefix(key, "tessera.dev/") || strings.HasPrefix(key, "nvidia.com/")
		})
		taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(taint corev1.Taint) bool { return taint.Key == v1alpha1.TaintNotReady })
		return fmt.Sprint(labels, n.Annotations, n.Finalizers, n.OwnerReferences, n.Spec.Unschedulable, taints)
	}
	mutations(t, base, []string{planted, v1alpha1.TaintNotReady, ""}, func(field string, changed *corev1.Node) {
		for _, edit := range []func(*corev1.Node){
			func(*corev1.Node) {},
			func(n *corev1.Node) { n.Labels["tessera.dev/ready"] = "false" },
			func(n *corev1.Node) { delete(n.Labels, "nvidia.com/gpu.present") },
			func(n *corev1.Node) { n.Labels["nvidia.com/gpu.count"] = "8" },
		} {
			previous := base.DeepCopy()
			edit(previous)
			harmful := foreign(changed) != foreign(previous)
			for _, w := range []attack{
				{who: installer, operation: admission.Update, object: changed, previous: previous},
				{who: installer, operation: admission.Update, object: previous, previous: changed},
			} {
				c.submit(t, field, w, harmful)
				if !harmful {
					c.permit(t, w)
				}
				w.who = admin
				c.permit(t, w)
			}
		}
	})
	c.judge(t, 100)
}
