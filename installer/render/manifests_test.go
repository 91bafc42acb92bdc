package render_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// difference is one intended difference between a rendered object and the manifest in deployments/.
type difference[T any] struct {
	why  string
	make func(T)
}

// The agent and the scheduler of the installer equal those of deployments/, except for the listed differences.

func TestAgentIsThatOfTheManifests(t *testing.T) {
	want := manifest[appsv1.DaemonSet](t, "daemonset.yaml", 0)
	got := one[*appsv1.DaemonSet](t, objects(t, released(plain())), "tessera-node")
	hash := got.Spec.Template.Annotations[render.AnnotationConfig]
	if hash == "" {
		t.Error("the pod has no hash of its configuration: a change would start no new agent")
	}
	compare(t, want, unsigned(got), []difference[*appsv1.DaemonSet]{
		{"every object has the installer's label", func(d *appsv1.DaemonSet) { d.Labels[render.LabelManagedBy] = render.ManagedBy }},
		{"the pool is a label, by which others find its pods", func(d *appsv1.DaemonSet) { d.Spec.Template.Labels[v1alpha1.LabelAgent] = "default" }},
		{"the installer places the agent by a label, which it takes away when the user opts out and the GPUs are free", func(d *appsv1.DaemonSet) {
			d.Spec.Template.Spec.Affinity = nil
			d.Spec.Template.Spec.NodeSelector[v1alpha1.LabelAgent] = "default"
		}},
		{"another configuration starts new agents", func(d *appsv1.DaemonSet) {
			d.Spec.Template.Annotations = map[string]string{render.AnnotationConfig: hash}
		}},
		{"a fleet of thousands is not updated node by node", func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy.RollingUpdate.MaxSurge = new(intstr.FromString("10%"))
		}},
		{"the agent writes into its GPUNode", func(d *appsv1.DaemonSet) {
			c := &d.Spec.Template.Spec.Containers[0]
			c.Args = append(c.Args, "--gpunode")
		}},
	})
}

func TestAgentConfigIsThatOfTheManifests(t *testing.T) {
	want := manifest[corev1.ConfigMap](t, "node-config.yaml", 0)
	got := one[*corev1.ConfigMap](t, objects(t, released(plain())), "tessera-node-config")
	if diff := cmp.Diff(parsed(t, want.Data["node.yaml"]), parsed(t, got.Data["node.yaml"])); diff != "" {
		t.Errorf("-manifest +rendered\n%s", diff)
	}
}

func TestAgentsAcceptTheirConfigs(t *testing.T) {
	for _, in := range inputs() {
		for _, object := range objects(t, in) {
			config, ok := object.(*corev1.ConfigMap)
			if !ok || config.Data["node.yaml"] == "" {
				continue
			}
			if _, err := v1alpha1.Load([]byte(config.Data["node.yaml"])); err != nil {
				t.Errorf("%s: %v", config.Name, err)
			}
		}
	}
}

func TestSchedulerIsThatOfTheManifests(t *testing.T) {
	in := released(plain())
	in.SchedulerAvailable = true
	all := objects(t, in)
	got := one[*appsv1.Deployment](t, all, "tessera-scheduler")
	hash := got.Spec.Template.Annotations[render.AnnotationConfig]
	compare(t, manifest[appsv1.Deployment](t, "scheduler/common/deployment.yaml", 0), unsigned(got), []difference[*appsv1.Deployment]{
		{"every object has the installer's label", func(d *appsv1.Deployment) { d.Labels[render.LabelManagedBy] = render.ManagedBy }},
		{"another configuration starts new schedulers; kustomize gives the ConfigMap another name instead", func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{render.AnnotationConfig: hash}
		}},
		{"the container has the setting, too", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
		}},
	})
	compare(t, manifest[policyv1.PodDisruptionBudget](t, "scheduler/common/deployment.yaml", 1),
		unsigned(one[*policyv1.PodDisruptionBudget](t, all, "tessera-scheduler")), []difference[*policyv1.PodDisruptionBudget]{
			{"every object has the labels of its operand", func(b *policyv1.PodDisruptionBudget) { b.Labels = operandLabels("tessera-scheduler") }},
		})
	compare(t, manifest[resourceapi.DeviceTaintRule](t, "scheduler/additional/taint.yaml", 0),
		unsigned(one[*resourceapi.DeviceTaintRule](t, all, "scheduler.gpu.tessera.dev")), []difference[*resourceapi.DeviceTaintRule]{
			{"every object has the labels of its operand", func(r *resourceapi.DeviceTaintRule) { r.Labels = operandLabels("tessera-scheduler") }},
		})
	type binding = *admissionregistrationv1.MutatingAdmissionPolicyBinding
	compare(t, manifest[admissionregistrationv1.MutatingAdmissionPolicyBinding](t, "scheduler/additional/schedulername-binding.yaml", 0),
		unsigned(one[binding](t, all, render.SchedulerAssignment)), []difference[binding]{
			{"every object has the labels of its operand", func(b binding) { b.Labels = operandLabels("tessera-scheduler") }},
		})
}

// Pods with claims for the driver's devices name the scheduler that may allocate them: the policy does not apply to the installer's namespace.
func TestMonitorsNameTheSchedulerOfDevices(t *testing.T) {
	off, on := v1alpha1.Component{Enabled: new(false)}, v1alpha1.Component{Enabled: new(true)}
	for want, schedulers := range map[string][]v1alpha1.SchedulerSpec{
		"tessera-scheduler": {{}, {Mode: v1alpha1.SchedulerAdditional}},
		"default-scheduler": {{Mode: v1alpha1.SchedulerReplace}, {Component: off}},
	} {
		for _, scheduler := range schedulers {
			in := plain()
			in.Policy.Spec.Scheduler, in.Policy.Spec.DCGM = scheduler, on
			for _, name := range []string{"tessera-dcgm", "tessera-dcgm-exporter"} {
				pod := one[*appsv1.DaemonSet](t, objects(t, in), name).Spec.Template.Spec
				if len(pod.ResourceClaims) == 0 || pod.SchedulerName != want {
					t.Errorf("scheduler %+v: %s has the scheduler %q, want %q", scheduler, name, pod.SchedulerName, want)
				}
			}
		}
	}
}

// Pods are assigned to a scheduler that is available and runs in addition to kube-scheduler; one in its place schedules all pods.
func TestPodsAreAssignedToAnAvailableScheduler(t *testing.T) {
	for _, test := range []struct {
		mode      v1alpha1.SchedulerMode
		available bool
		want      bool
	}{
		{v1alpha1.SchedulerAdditional, true, true}, {v1alpha1.SchedulerAdditional, false, false}, {v1alpha1.SchedulerReplace, true, false}, {"", true, true},
	} {
		in := plain()
		in.Policy.Spec.Scheduler.Mode, in.SchedulerAvailable = test.mode, test.available
		has := slices.Contains(titles(objects(t, in)), "MutatingAdmissionPolicyBinding/schedulername.gpu.tessera.dev")
		if has != test.want {
			t.Errorf("mode %q, available %v: the binding is rendered: %v", test.mode, test.available, has)
		}
	}
}

func TestSchedulerConfigIsThatOfTheManifests(t *testing.T) {
	for _, mode := range []v1alpha1.SchedulerMode{v1alpha1.SchedulerAdditional, v1alpha1.SchedulerReplace} {
		t.Run(string(mode), func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("../../deployments/scheduler", strings.ToLower(string(mode)), "config.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			in := plain()
			in.Policy.Spec.Scheduler.Mode = mode
			got := one[*corev1.ConfigMap](t, objects(t, in), "tessera-scheduler-config").Data["config.yaml"]
			if diff := cmp.Diff(parsed(t, string(want)), parsed(t, got)); diff != "" {
				t.Errorf("-manifest +rendered\n%s", diff)
			}
		})
	}
}

// released has the images of the manifests.
func released(in render.Input) render.Input {
	in.Images.Node, in.Images.Scheduler = "localhost/tessera/node:dev", "localhost/tessera/scheduler:dev"
	return in
}

func operandLabels(name string) map[string]string {
	return map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "tessera", render.LabelManagedBy: render.ManagedBy}
}

// compare applies the differences to want; each must change it. Then both must be equal.
func compare[T client.Object](t *testing.T, want, got T, differences []difference[T]) {
	t.Helper()
	for _, d := range differences {
		before := want.DeepCopyObject()
		d.make(want)
		if cmp.Equal(before, want.DeepCopyObject()) {
			t.Errorf("no difference any more: %s", d.why)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rendered and manifest differ in unlisted fields: -manifest +rendered\n%s", diff)
	}
}

// unsigned removes the hash.
func unsigned[T client.Object](object T) T {
	annotations := object.GetAnnotations()
	delete(annotations, render.AnnotationHash)
	if len(annotations) == 0 {
		object.SetAnnotations(nil)
	}
	return object
}

// manifest reads a document of a file below deployments.
func manifest[T any](t *testing.T, file string, document int) *T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deployments", file))
	if err != nil {
		t.Fatal(err)
	}
	var object T
	if err := yaml.UnmarshalStrict(bytes.Split(text, []byte("\n---\n"))[document], &object); err != nil {
		t.Fatal(err)
	}
	return &object
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := yaml.UnmarshalStrict([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// one returns the object of that type and name.
func one[T client.Object](t testing.TB, all []client.Object, name string) T {
	t.Helper()
	for _, object := range all {
		if typed, ok := object.(T); ok && typed.GetName() == name {
			return typed
		}
	}
	var none T
	t.Fatalf("no %T %s", none, name)
	return none
}
