package verify

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// daemonPod is a pod as the agent makes them for MPS daemons, after a change.
func daemonPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "mps-gpu", Namespace: "tessera-system", Labels: map[string]string{"app.kubernetes.io/name": "tessera-mps"}},
		Spec: corev1.PodSpec{
			NodeName: "node1", ServiceAccountName: "default", AutomountServiceAccountToken: &no, // the API server fills the first in
			Containers: []corev1.Container{{Name: "tessera-mps", Image: "any", Env: []corev1.EnvVar{
				{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
			}}},
			Volumes: []corev1.Volume{
				{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}},
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "tessera-node-config"}}}},
			},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// TestAgentMakesItsOwnDaemonsOnly evaluates the policy as the API server does.
func TestAgentMakesItsOwnDaemonsOnly(t *testing.T) {
	on := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	mount := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: source})
		}
	}
	lookalike := func(p *corev1.Pod) { p.Labels = map[string]string{"app.kubernetes.io/name": "tessera-node"} }
	unlabelled := func(p *corev1.Pod) { p.Labels = nil }
	yes := true
	tests := map[string]struct {
		who              user.Info
		operation        admission.Operation
		subresource      string
		object, previous *corev1.Pod
		// want is a part of the refusal; empty when the write passes.
		want string
	}{
		"makes its own":   {agent, admission.Create, "", daemonPod(), nil, ""},
		"deletes its own": {agent, admission.Delete, "", nil, daemonPod(), ""},
		"makes one of a NodeConfig": {agent, admission.Create, "", daemonPod(mount(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "tessera-node-config-h100"}}})), nil, ""},
		"makes one with a value in its environment": {agent, admission.Create, "", daemonPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "A", Value: "b"})
		}), nil, ""},
		"makes one without an account": {agent, admission.Create, "", daemonPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "" }), nil, ""},
		"makes another node's":         {agent, admission.Create, "", daemonPod(on("node2")), nil, "the agent on node node1 may not create or delete a pod on node node2: set spec.nodeName to node1"},
		"makes one for the scheduler":  {agent, admission.Create, "", daemonPod(on("")), nil, "may not create or delete a pod on any node"},
		"deletes another node's":       {agent, admission.Delete, "", nil, daemonPod(on("node2")), "may not create or delete a pod on node node2"},
		"deletes an agent":             {agent, admission.Delete, "", nil, daemonPod(lookalike), "create and delete only pods of MPS daemons"},
		"makes another pod":            {agent, admission.Create, "", daemonPod(unlabelled), nil, "create and delete only pods of MPS daemons"},
		"makes one with rights": {agent, admission.Create, "", daemonPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "tessera-node" }), nil,
			"no rights at the API server"},
		"makes one with a token": {agent, admission.Create, "", daemonPod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &yes }), nil,
			"no rights at the API server"},
		"does not forbid the token": {agent, admission.Create, "", daemonPod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }), nil,
			"no rights at the API server"},
		"mounts a token":  {agent, admission.Create, "", daemonPod(mount(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}})), nil, "hostPath, emptyDir or configMap"},
		"mounts a secret": {agent, admission.Create, "", daemonPod(mount(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}})), nil, "hostPath, emptyDir or configMap"},
		"reads a secret": {agent, admission.Create, "", daemonPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Env[0].ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}
		}), nil, "no environment from Secrets"},
		"reads all of a secret": {agent, admission.Create, "", daemonPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
		}), nil, "no environment from Secrets"},
		"mounts another ConfigMap": {agent, admission.Create, "", daemonPod(mount(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "other"}}})), nil, "its ConfigMaps must have the name tessera-node-config"},
		"mounts another ConfigMap whose name ends alike": {agent, admission.Create, "", daemonPod(mount(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "other-tessera-node-config-"}}})), nil, "its ConfigMaps must have the name tessera-node-config"},
		"pulls with a secret": {agent, admission.Create, "", daemonPod(func(p *corev1.Pod) {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "other"}}
		}), nil, "the pull secrets of an MPS daemon must be some of []"},
		"has a claim": {agent, admission.Create, "", daemonPod(func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}}
		}), nil, "no claims"},
		"has an init container":  {agent, admission.Create, "", daemonPod(func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.Containers }), nil, "one container"},
		"changes its own":        {agent, admission.Update, "", daemonPod(), daemonPod(), "may only create and delete pods"},
		"uses a subresource":     {agent, admission.Create, "eviction", daemonPod(), nil, "subresources"},
		"has a token of no node": {unbound, admission.Create, "", daemonPod(), nil, "is not bound to a pod on a node"},
		"an administrator may":   {admin, admission.Create, "", daemonPod(on("node2"), unlabelled), nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			judge := judgeOf(t, "mps-daemons.gpu.tessera.dev", target{
				resource: corev1.SchemeGroupVersion.WithResource("pods"), kind: corev1.SchemeGroupVersion.WithKind("Pod"), subresource: test.subresource,
			})
			got := strings.Join(judge(t, test.who, test.operation, object(test.object), object(test.previous)), "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("refusal: got %q, want %q", got, test.want)
			}
		})
	}
}

// object returns the pod; a nil pointer in an interface is not nil.
func object(pod *corev1.Pod) runtime.Object {
	if pod == nil {
		return nil
	}
	return pod
}

// TestDaemonsPullWithTheAgentsSecrets checks that the chart permits the pull secrets of the agent's pods, and no others: they are those of all
// DaemonSets and those of the agent (installer/render).
func TestDaemonsPullWithTheAgentsSecrets(t *testing.T) {
	pulls := func(names ...string) *corev1.Pod {
		return daemonPod(func(p *corev1.Pod) {
			for _, name := range names {
				p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
			}
		})
	}
	for name, test := range map[string]struct {
		flags              []string
		permitted, refused []string
	}{
		"none":           {nil, nil, []string{"one"}},
		"of the release": {[]string{"--set", "imagePullSecrets={one,two}"}, []string{"one", "two"}, []string{"one", "three"}},
		"of the policy": {[]string{"--set", "imagePullSecrets={one}", "--set", "clusterPolicy.daemonSets.imagePullSecrets={two}",
			"--set", "clusterPolicy.nodeAgent.imagePullSecrets={three}"}, []string{"two", "three"}, []string{"one"}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered(t, test.flags...), "mps-daemons.gpu.tessera.dev")
			judge := compile(t, policy, target{resource: corev1.SchemeGroupVersion.WithResource("pods"), kind: corev1.SchemeGroupVersion.WithKind("Pod")})
			if got := judge(t, agent, admission.Create, pulls(test.permitted...), nil); len(got) > 0 {
				t.Errorf("with %q: %q", test.permitted, got)
			}
			if got := judge(t, agent, admission.Create, pulls(test.refused...), nil); len(got) != 1 {
				t.Errorf("with %q: %q", test.refused, got)
			}
		})
	}
}
