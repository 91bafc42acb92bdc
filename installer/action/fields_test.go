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

// What a policy decides about the validator stands in the pods that it validates with.
func TestValidatorFieldsReachItsPods(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Validate)
		want   string
	}{
		{"image", func(v *Validate) { v.Component.Image = "registry.example/own/validator:1" }, `"image":"registry.example/own/validator:1"`},
		{"imagePullPolicy", func(v *Validate) { v.Component.ImagePullPolicy = corev1.PullAlways }, `"imagePullPolicy":"Always"`},
		{"imagePullSecrets", func(v *Validate) { v.Component.ImagePullSecrets = []string{"own"} }, `"imagePullSecrets":[{"name":"own"}]`},
		{"resources", func(v *Validate) {
			v.Component.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
		}, `"limits":{"memory":"1Gi"}`},
		{"env", func(v *Validate) { v.Component.Env = []corev1.EnvVar{{Name: "OWN", Value: "yes"}} }, `"env":[{"name":"OWN","value":"yes"}]`},
		{"args", func(v *Validate) { v.Component.Args = []string{"--own"} }, `"args":["--own"]`},
		{"tolerations", func(v *Validate) {
			v.Component.Tolerations = []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}}
		}, `{"key":"own","operator":"Exists"}`},
		{"timeout", func(v *Validate) { v.Timeout = 7 * time.Minute }, `"activeDeadlineSeconds":420`},
	} {
		t.Run(c.field, func(t *testing.T) {
			v := Validate{Node: &v1alpha1.GPUNode{}, Component: v1alpha1.Component{Image: "validator"}, Timeout: time.Minute}
			for _, part := range Parts() {
				if before := podText(t, v, part); strings.Contains(before, c.want) {
					t.Fatalf("the pod says %s before the change, too: %s", c.want, before)
				}
				changed := v
				c.change(&changed)
				if after := podText(t, changed, part); !strings.Contains(after, c.want) {
					t.Errorf("the pod does not say %s: %s", c.want, after)
				}
			}
		})
	}
}

func podText(t *testing.T, v Validate, part Part) string {
	t.Helper()
	text, err := json.Marshal(v.pod(Cluster{Namespace: "tessera-system"}, part))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
