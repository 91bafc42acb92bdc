package verify

import (
	"errors"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/tessera-gpu/tessera/e2e/tests/corpus"
)

// The resources that contain requests and parameters.
var (
	claimTarget    = target{resource: resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), kind: resourceapi.SchemeGroupVersion.WithKind("ResourceClaim")}
	templateTarget = target{resource: resourceapi.SchemeGroupVersion.WithResource("resourceclaimtemplates"), kind: resourceapi.SchemeGroupVersion.WithKind("ResourceClaimTemplate")}
	classTarget    = target{resource: resourceapi.SchemeGroupVersion.WithResource("deviceclasses"), kind: resourceapi.SchemeGroupVersion.WithKind("DeviceClass")}
)

// TestMonitorsNeedAdminAccess evaluates the policy on claims and templates, new and changed.
func TestMonitorsNeedAdminAccess(t *testing.T) {
	policy := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered(t), "monitors.gpu.tessera.dev")
	exactly := func(class string, admin *bool) resourceapi.DeviceRequest {
		return resourceapi.DeviceRequest{Name: class, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, AdminAccess: admin}}
	}
	firstOf := func(classes ...string) resourceapi.DeviceRequest {
		r := resourceapi.DeviceRequest{Name: "alternatives"}
		for _, class := range classes {
			r.FirstAvailable = append(r.FirstAvailable, resourceapi.DeviceSubRequest{Name: class, DeviceClassName: class})
		}
		return r
	}
	const whole, monitor = "gpu.tessera.dev", "monitor.tessera.dev"
	const adminOnly, noAlternative = "must have adminAccess: true", "cannot be an alternative"
	for name, test := range map[string]struct {
		requests []resourceapi.DeviceRequest
		// want is a part of the only refusal; empty when the write passes.
		want string
	}{
		"nothing":                        {nil, ""},
		"a GPU":                          {[]resourceapi.DeviceRequest{exactly(whole, nil)}, ""},
		"a GPU with adminAccess":         {[]resourceapi.DeviceRequest{exactly(whole, new(true))}, ""},
		"monitors with adminAccess":      {[]resourceapi.DeviceRequest{exactly(monitor, new(true))}, ""},
		"monitors without adminAccess":   {[]resourceapi.DeviceRequest{exactly(monitor, nil)}, adminOnly},
		"monitors with no adminAccess":   {[]resourceapi.DeviceRequest{exactly(monitor, new(false))}, adminOnly},
		"a GPU, and monitors without it": {[]resourceapi.DeviceRequest{exactly(whole, nil), exactly(monitor, nil)}, adminOnly},
		"alternatives":                   {[]resourceapi.DeviceRequest{firstOf(whole, "mig.tessera.dev")}, ""},
		"monitors as last alternative":   {[]resourceapi.DeviceRequest{exactly(whole, nil), firstOf(whole, monitor)}, noAlternative},
	} {
		spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: test.requests}}
		t.Run(name, func(t *testing.T) {
			for to, object := range map[target]runtime.Object{
				claimTarget:    &resourceapi.ResourceClaim{Spec: spec},
				templateTarget: &resourceapi.ResourceClaimTemplate{Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}},
			} {
				object.GetObjectKind().SetGroupVersionKind(to.kind)
				judge := compile(t, policy, to)
				got := judge(t, admin, admission.Create, object, nil)
				if refused := test.want != ""; (len(got) == 1) != refused || refused && !strings.Contains(got[0], test.want) {
					t.Errorf("refusals of the %s: %q, want %q", to.kind.Kind, got, test.want)
				}
			}
		})
	}
}

// TestClaimsWithoutRequests: the API server omits empty fields.
func TestClaimsWithoutRequests(t *testing.T) {
	judge := compile(t, named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered(t), "monitors.gpu.tessera.dev"), claimTarget)
	for _, spec := range []map[string]any{{}, {"devices": map[string]any{}}, {"devices": map[string]any{"requests": []any{}}}} {
		claim := &unstructured.Unstructured{Object: map[string]any{"kind": "ResourceClaim", "spec": spec}}
		if got := judge(t, admin, admission.Create, claim, nil); len(got) > 0 {
			t.Errorf("%v: %q", spec, got)
		}
	}
}

// TestParametersOfTheCorpus evaluates the policy on the cases of the corpus, to which e2e/tests/agent compares a real API server, and the tests of the
// agent's code compare that.
func TestParametersOfTheCorpus(t *testing.T) {
	policy := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered(t), "parameters.gpu.tessera.dev")
	judges := map[target]verdict{}
	for _, to := range []target{claimTarget, templateTarget, classTarget} {
		judges[to] = compile(t, policy, to)
	}
	cases, err := corpus.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.Server != "" {
			continue // the API server refuses it before it evaluates policies
		}
		claim, failed := c.Claim()
		template, failedTemplate := c.Template()
		class, failedClass := c.DeviceClass()
		if err := errors.Join(failed, failedTemplate, failedClass); err != nil {
			t.Fatal(err)
		}
		for to, object := range map[target]runtime.Object{claimTarget: claim, templateTarget: template, classTarget: class} {
			want := c.Refusal(to == classTarget)
			if c.Unseen != "" {
				want = ""
			}
			got := judges[to](t, admin, admission.Create, object, nil)
			if want == "" && len(got) > 0 || want != "" && !strings.Contains(strings.Join(got, "\n"), want) {
				t.Errorf("%s, %s: refusals %q, want %q", c.Name, to.kind.Kind, got, want)
			}
			if unchanged := judges[to](t, admin, admission.Update, object, object); len(unchanged) > 0 {
				t.Errorf("%s, %s: refusals without a change of the parameters: %q", c.Name, to.kind.Kind, unchanged)
			}
		}
	}
}

// TestParametersOfALargeClaim evaluates the policy on as many parameters as a claim can have, within the API server's budget: valid ones, and one with a wrong
// key in each entry.
func TestParametersOfALargeClaim(t *testing.T) {
	judge := compile(t, named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, rendered(t), "parameters.gpu.tessera.dev"), claimTarget)
	large := corpus.Large()
	claim, err := large.Claim()
	if err != nil {
		t.Fatal(err)
	}
	claim.Spec.Devices.Config = slices.Repeat(claim.Spec.Devices.Config, resourceapi.DeviceConfigMaxSize)
	if got := judge(t, admin, admission.Create, claim, nil); len(got) > 0 {
		t.Errorf("a large claim: %q", got)
	}
	for i := range claim.Spec.Devices.Config {
		opaque := claim.Spec.Devices.Config[i].Opaque.DeepCopy()
		opaque.Parameters.Raw = []byte(strings.Replace(string(opaque.Parameters.Raw), `"63":`, `"063":`, 1))
		claim.Spec.Devices.Config[i].Opaque = opaque
	}
	got := judge(t, admin, admission.Create, claim, nil)
	if want := "defaultPerDevicePinnedMemoryLimit[063]: the key must be the position of a GPU"; len(got) != 1 || !strings.Contains(got[0], want) {
		t.Errorf("a large claim with wrong keys: %q, want %q", got, want)
	}
}
