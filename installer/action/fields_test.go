package action

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Each field of the validator component appears in the pods of a validation.
func TestValidatorFieldsReachItsPods(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Validation)
		want   string
	}{
		{"image", func(v *Validation) { v.Component.Image = "registry.example/own/validator:1" }, `"image":"registry.example/own/validator:1"`},
		{"imagePullPolicy", func(v *Validation) { v.Component.ImagePullPolicy = corev1.PullAlways }, `"imagePullPolicy":"Always"`},
		{"imagePullSecrets", func(v *Validation) { v.Component.ImagePullSecrets = []string{"own"} }, `"imagePullSecrets":[{"name":"own"}]`},
		{"resources", func(v *Validation) {
			v.Component.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
		}, `"limits":{"memory":"1Gi"}`},
		{"env", func(v *Validation) { v.Component.Env = []corev1.EnvVar{{Name: "OWN", Value: "yes"}} }, `"env":[{"name":"OWN","value":"yes"}]`},
		{"args", func(v *Validation) { v.Component.Args = []string{"--own"} }, `"args":["--own"]`},
		{"tolerations", func(v *Validation) {
			v.Component.Tolerations = []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}}
		}, `{"key":"own","operator":"Exists"}`},
		{"timeout", func(v *Validation) { v.Timeout = 7 * time.Minute }, `"activeDeadlineSeconds":420`},
	} {
		t.Run(c.field, func(t *testing.T) {
			v := Validation{Node: &v1alpha1.GPUNode{}, Agent: v1alpha1.Component{Image: "node"}, Timeout: time.Minute}
			for _, part := range NodeValidationParts() {
				if before := podText(t, v, part); strings.Contains(before, c.want) {
					t.Fatalf("the pod has %s before the change: %s", c.want, before)
				}
				changed := v
				c.change(&changed)
				if after := podText(t, changed, part); !strings.Contains(after, c.want) {
					t.Errorf("the pod lacks %s: %s", c.want, after)
				}
			}
		})
	}
}

// By default the node agent's image validates, with its pull policy and secrets. An image of the policy runs its entrypoint, and gets none of these.
func TestValidatorIsTheAgentsImage(t *testing.T) {
	v := Validation{
		Node:    &v1alpha1.GPUNode{},
		Agent:   v1alpha1.Component{Image: "node", ImagePullPolicy: corev1.PullAlways, ImagePullSecrets: []string{"of-agent"}},
		Timeout: time.Minute,
	}
	for part, command := range map[ValidationPart]string{
		PartGPUs: `"command":["tessera-node","validate"]`, PartMIG: `"command":["tessera-node","validate","--mig"]`,
		GPUValidationPart("gpu-0"): `"command":["tessera-node","validate"]`,
	} {
		text := podText(t, v, part)
		for _, want := range []string{command, `"image":"node"`, `"imagePullPolicy":"Always"`, `"imagePullSecrets":[{"name":"of-agent"}]`} {
			if !strings.Contains(text, want) {
				t.Errorf("part %q lacks %s: %s", part, want, text)
			}
		}
		own := v
		own.Component.Image = "own"
		if text := podText(t, own, part); strings.Contains(text, "command") || strings.Contains(text, "of-agent") || strings.Contains(text, "Always") {
			t.Errorf("part %q with the image of the policy: %s", part, text)
		}
	}
}

func podText(t *testing.T, v Validation, part ValidationPart) string {
	t.Helper()
	text, err := json.Marshal(Cluster{Namespace: "tessera-system"}.validationPod(v, part))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
