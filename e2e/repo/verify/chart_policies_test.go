package verify

import (
	"reflect"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// accountOf is one of the chart's accounts, on node1 where it runs on nodes.
func accountOf(name, node string) user.Info {
	who := &user.DefaultInfo{Name: "system:serviceaccount:tessera-system:" + name}
	if node != "" {
		who.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	return who
}

// gpuNode returns a GPUNode as the API server shows it to policies, after an edit.
func gpuNode(t *testing.T, edit func(*v1alpha1.GPUNode)) runtime.Object {
	t.Helper()
	node := &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{"a": "b"}},
		Spec:       v1alpha1.GPUNodeSpec{AgentPool: "default"},
		Status: v1alpha1.GPUNodeStatus{
			Phase: v1alpha1.PhaseReady, Hardware: &v1alpha1.HardwareStatus{BootID: "one"}, Agent: &v1alpha1.AgentStatus{PodUID: "one"},
		},
	}
	edit(node)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

// write is a write by an account, and the message of its rejection; empty when it passes.
type write struct {
	who           user.Info
	to            target
	operation     admission.Operation
	after, before runtime.Object
	want          string
}

// judgeWrites compares the results of a policy of the chart for the writes.
func judgeWrites(t *testing.T, policy string, writes map[string]write) {
	t.Helper()
	found := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered(t), policy)
	judges := map[target]verdict{}
	for name, w := range writes {
		if judges[w.to] == nil {
			judges[w.to] = compile(t, found, w.to)
		}
		t.Run(name, func(t *testing.T) {
			got := strings.Join(judges[w.to](t, w.who, w.operation, w.after, w.before), "\n")
			if w.want == "" && got != "" || !strings.Contains(got, w.want) {
				t.Errorf("refusal: got %q, want %q", got, w.want)
			}
		})
	}
}

func TestAGPUNodeIsWrittenByItsOwn(t *testing.T) {
	discovery, node := accountOf("tessera-discovery", "node1"), accountOf("tessera-node", "node1")
	installer := accountOf("tessera-installer", "")
	to := func(name, subresource string) target {
		return target{
			resource: v1alpha1.GroupVersion.WithResource("gpunodes"), kind: v1alpha1.GroupVersion.WithKind("GPUNode"), subresource: subresource, name: name,
		}
	}
	whole, status, other := to("node1", ""), to("node1", "status"), to("node2", "status")
	same := func(*v1alpha1.GPUNode) {}
	hardware := func(n *v1alpha1.GPUNode) { n.Status.Hardware = &v1alpha1.HardwareStatus{BootID: "two"} }
	reported := func(n *v1alpha1.GPUNode) { n.Status.Agent = &v1alpha1.AgentStatus{PodUID: "two"} }
	silent := func(n *v1alpha1.GPUNode) { n.Status.Agent = nil }
	phase := func(n *v1alpha1.GPUNode) { n.Status.Phase = v1alpha1.PhaseFailed }
	bare := func(n *v1alpha1.GPUNode) {
		n.Labels, n.Spec, n.Status = nil, v1alpha1.GPUNodeSpec{}, v1alpha1.GPUNodeStatus{}
	}
	owned := func(n *v1alpha1.GPUNode) { n.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "node1"}} }
	pool := func(n *v1alpha1.GPUNode) { n.Spec.AgentPool = "other" }
	labelled := func(n *v1alpha1.GPUNode) { n.Labels = nil }
	update := func(who user.Info, to target, edit func(*v1alpha1.GPUNode), want string) write {
		return write{who, to, admission.Update, gpuNode(t, edit), gpuNode(t, same), want}
	}
	judgeWrites(t, "gpunodes.gpu.tessera.dev", map[string]write{
		"discovery writes hardware":             update(discovery, status, hardware, ""),
		"discovery writes nothing new":          update(discovery, status, same, ""),
		"discovery begins":                      {discovery, whole, admission.Create, gpuNode(t, bare), nil, ""},
		"discovery names the owner":             update(discovery, whole, owned, ""),
		"discovery writes its first":            {discovery, status, admission.Update, gpuNode(t, func(n *v1alpha1.GPUNode) { bare(n); hardware(n) }), gpuNode(t, bare), ""},
		"discovery begins with a spec":          {discovery, whole, admission.Create, gpuNode(t, same), nil, "the discovery may not write spec, labels, annotations and finalizers"},
		"discovery speaks for the agent":        update(discovery, status, reported, "the discovery may not write status.agent of a GPUNode; it may write only status.hardware"),
		"discovery names a phase":               update(discovery, status, phase, "may not write status.phase"),
		"discovery writes another node's":       {discovery, other, admission.Update, gpuNode(t, hardware), gpuNode(t, same), "the discovery on node node1 may not write the GPUNode node2"},
		"discovery deletes":                     {discovery, whole, admission.Delete, nil, gpuNode(t, same), "the discovery may not delete a GPUNode"},
		"discovery changes the spec":            update(discovery, whole, pool, "may not write spec, labels, annotations and finalizers"),
		"discovery takes labels":                update(discovery, whole, labelled, "may not write spec, labels, annotations and finalizers"),
		"the agent writes its part":             update(node, status, reported, ""),
		"the agent takes its part back":         update(node, status, silent, ""),
		"the agent writes hardware":             update(node, status, hardware, "the node agent may not write status.hardware of a GPUNode; it may write only status.agent"),
		"the agent names a phase":               update(node, status, phase, "may not write status.phase"),
		"the agent writes another node's":       {node, other, admission.Update, gpuNode(t, reported), gpuNode(t, same), "the node agent on node node1 may not write the GPUNode node2"},
		"the agent changes the spec":            update(node, whole, pool, "the node agent may not update a GPUNode"),
		"the agent creates":                     {node, whole, admission.Create, gpuNode(t, bare), nil, "the node agent may not create a GPUNode"},
		"a token of no node":                    update(accountOf("tessera-node", ""), status, reported, "is not bound to a pod on a node"),
		"the installer names a phase":           update(installer, status, phase, ""),
		"the installer changes the spec":        update(installer, whole, pool, ""),
		"the installer deletes":                 {installer, whole, admission.Delete, nil, gpuNode(t, same), ""},
		"the installer speaks for the agent":    update(installer, status, reported, "the installer may not write status.agent of a GPUNode"),
		"the installer speaks for discovery":    update(installer, status, hardware, "the installer may not write status.hardware of a GPUNode"),
		"the installer silences the agent":      update(installer, status, silent, "the installer may not write status.agent of a GPUNode"),
		"an administrator does what it must do": update(admin, status, func(n *v1alpha1.GPUNode) { reported(n); phase(n) }, ""),
		"so does an agent elsewhere":            update(&user.DefaultInfo{Name: "system:serviceaccount:other:tessera-node"}, status, phase, ""),
	})
}

// TestPartsOfAGPUNodeAreWhatPoliciesCallThem: the policy contains the names of the parts as text.
func TestPartsOfAGPUNodeAreWhatPoliciesCallThem(t *testing.T) {
	for _, part := range []string{"Hardware", "Agent"} {
		field, ok := reflect.TypeFor[v1alpha1.GPUNodeStatus]().FieldByName(part)
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !ok || name != strings.ToLower(part) {
			t.Errorf("status.%s is called %q", part, name)
		}
	}
}

// installerPod returns a pod as the installer creates it, after an edit, which may be nil.
func installerPod(kind, account string, edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: kind + "-node1", Labels: map[string]string{"app.kubernetes.io/name": kind}},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
		},
	}
	if edit != nil {
		edit(p)
	}
	return p
}

func TestTheInstallerMakesPodsOfTwoKinds(t *testing.T) {
	installer := accountOf("tessera-installer", "")
	to := target{resource: corev1.SchemeGroupVersion.WithResource("pods"), kind: corev1.SchemeGroupVersion.WithKind("Pod")}
	pod := installerPod
	host := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	}
	secret := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
	}
	from := func(p *corev1.Pod) {
		p.Spec.Containers[0].Env[0] = corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}
	}
	all := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}}}
	}
	create := func(p *corev1.Pod, want string) write { return write{installer, to, admission.Create, p, nil, want} }
	const validation, operation, driver = "tessera-validation", "tessera-operation", "tessera-driver"
	judgeWrites(t, "installer-pods.gpu.tessera.dev", map[string]write{
		"a validation":                           create(pod(validation, validation, nil), ""),
		"an operation":                           create(pod(operation, driver, host), ""),
		"a validation on the host":               create(pod(validation, validation, host), "pods of validations may not be privileged"),
		"a validation as the driver":             create(pod(validation, driver, nil), "may not access the API server"),
		"an operation as itself":                 create(pod(operation, "tessera-installer", nil), "may not access the API server"),
		"an operation as the scheduler":          create(pod(operation, "tessera-scheduler", nil), "may not access the API server"),
		"with a token":                           create(pod(operation, driver, func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }), "automountServiceAccountToken to false"),
		"with a Secret":                          create(pod(operation, driver, secret), "may not use Secrets"),
		"with a Secret in its environment":       create(pod(operation, driver, from), "may not use Secrets"),
		"with a Secret's keys in another's":      create(pod(operation, driver, all), "may not use Secrets"),
		"something else":                         create(pod("shell", driver, nil), "only pods of validations and operations"),
		"something else by its name":             create(pod(operation, driver, func(p *corev1.Pod) { p.Name = "shell" }), "only pods of validations and operations"),
		"something else that turns into another": {installer, to, admission.Update, pod("shell", driver, nil), pod(operation, driver, nil), "only pods of validations and operations"},
		"an administrator's":                     {admin, to, admission.Create, pod("shell", "", host), nil, ""},
	})
}

func TestTheInstallerWritesItsOwnLabels(t *testing.T) {
	installer := accountOf("tessera-installer", "")
	to := target{resource: corev1.SchemeGroupVersion.WithResource("nodes"), kind: corev1.SchemeGroupVersion.WithKind("Node")}
	node := func(edit func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{"zone": "a", "tessera.dev/ready": "true"}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}},
		}
		edit(n)
		return n
	}
	same := node(func(*corev1.Node) {})
	update := func(edit func(*corev1.Node), want string) write {
		return write{installer, to, admission.Update, node(edit), same, want}
	}
	judgeWrites(t, "installer-nodes.gpu.tessera.dev", map[string]write{
		"labels": update(func(n *corev1.Node) {
			n.Labels = map[string]string{"zone": "a", "tessera.dev/driver": "x", "nvidia.com/gpu.present": "true"}
		}, ""),
		"its taint": update(func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1alpha1.TaintNotReady, Effect: corev1.TaintEffectNoSchedule})
		}, ""),
		"takes its taint back": {installer, to, admission.Update, same, node(func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1alpha1.TaintNotReady, Effect: corev1.TaintEffectNoSchedule})
		}), ""},
		"changes a label": update(func(n *corev1.Node) { n.Labels["zone"] = "b" }, "may not write the label zone of a node"),
		"takes a label":   update(func(n *corev1.Node) { delete(n.Labels, "zone") }, "may not write the label zone of a node"),
		"adds a label":    update(func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/x"] = "" }, "may not write the label node-role.kubernetes.io/x"),
		"cordons":         update(func(n *corev1.Node) { n.Spec.Unschedulable = true }, "may not cordon a node"),
		"another taint":   update(func(n *corev1.Node) { n.Spec.Taints[0].Key = "x" }, "may not cordon a node, nor write a taint other than"),
		"takes a taint":   update(func(n *corev1.Node) { n.Spec.Taints = nil }, "may not cordon a node, nor write a taint other than"),
		"an annotation":   update(func(n *corev1.Node) { n.Annotations = map[string]string{"x": "y"} }, "may not write annotations, finalizers or owners of a node"),
		"holds it":        update(func(n *corev1.Node) { n.Finalizers = []string{"x.example.com/y"} }, "may not write annotations, finalizers or owners of a node"),
		"owns it": update(func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "x"}} },
			"may not write annotations, finalizers or owners of a node"),
		"another account": {admin, to, admission.Update, node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), same, ""},
	})
}

// TestVGPUDeviceManagerWritesThreeLabels: NVIDIA's program replaces the Node of its pod to write three labels (vgpu-device-manager
// cmd/nvidia-k8s-vgpu-dm/main.go:52-54,460-498,574-589); a compromised node can change nothing else.
func TestVGPUDeviceManagerWritesThreeLabels(t *testing.T) {
	manager := accountOf("tessera-vgpu-device-manager", "node1")
	to := target{resource: corev1.SchemeGroupVersion.WithResource("nodes"), kind: corev1.SchemeGroupVersion.WithKind("Node"), name: "node1"}
	other := to
	other.name = "node2"
	node := func(edit func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{"zone": "a", "nvidia.com/vgpu.config": "A40-8Q"}},
			Spec:       corev1.NodeSpec{ProviderID: "theirs"},
		}
		edit(n)
		return n
	}
	same := node(func(*corev1.Node) {})
	update := func(edit func(*corev1.Node), want string) write {
		return write{manager, to, admission.Update, node(edit), same, want}
	}
	failed := func(n *corev1.Node) { n.Labels["nvidia.com/vgpu.config.state"] = "failed" }
	const foreign = "the vGPU device manager may not write annotations, finalizers or owners of a node"
	judgeWrites(t, "vgpu-nodes.gpu.tessera.dev", map[string]write{
		"reports":             update(failed, ""),
		"reports for another": {manager, other, admission.Update, node(failed), same, "on node node1 may not write node node2"},
		"without a node":      {accountOf("tessera-vgpu-device-manager", ""), to, admission.Update, node(failed), same, "it may write only its node"},
		"pauses others": update(func(n *corev1.Node) {
			n.Labels["nvidia.com/gpu.deploy.sandbox-device-plugin"], n.Labels["nvidia.com/gpu.deploy.sandbox-validator"] = "paused-for-vgpu-change", ""
		}, ""),
		"chooses":         update(func(n *corev1.Node) { n.Labels["nvidia.com/vgpu.config"] = "A40-48Q" }, "may not write the label nvidia.com/vgpu.config of a node"),
		"takes a label":   update(func(n *corev1.Node) { delete(n.Labels, "zone") }, "may not write the label zone of a node"),
		"places a driver": update(func(n *corev1.Node) { n.Labels["tessera.dev/driver"] = "x" }, "may not write the label tessera.dev/driver"),
		"cordons":         update(func(n *corev1.Node) { n.Spec.Unschedulable = true }, "may not write the spec of a node"),
		"a taint":         update(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}} }, "may not write the spec of a node"),
		"an annotation":   update(func(n *corev1.Node) { n.Annotations = map[string]string{"x": "y"} }, foreign),
		"holds it":        update(func(n *corev1.Node) { n.Finalizers = []string{"x.example.com/y"} }, foreign),
		"owns it":         update(func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "x"}} }, foreign),
		"another account": {admin, to, admission.Update, node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), same, ""},
	})
}
