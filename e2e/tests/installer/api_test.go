package installer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	verdicts "github.com/tessera-gpu/tessera/e2e/tests/policies"
)

// TestVerdicts sends every case to the API server: a wrong object is rejected with the words of the case (A20: at any time, by
// the API server itself), a right one is stored as it was written.
func TestVerdicts(t *testing.T) {
	cases, err := verdicts.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			object, before, err := c.Object()
			if err != nil {
				t.Fatal(err)
			}
			err = try(t, object, before)
			switch {
			case c.Refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.Refused != "" && err == nil:
				t.Errorf("accepted, want %q", c.Refused)
			case c.Refused != "" && !strings.Contains(err.Error(), c.Refused):
				t.Errorf("%v\nwant %q", err, c.Refused)
			}
		})
	}
}

// try creates the object, or edits the previous one into it, and deletes it. An accepted object must be stored as it was
// written.
func try(t *testing.T, object, before *unstructured.Unstructured) error {
	t.Helper()
	client := resource(t, object.GetKind())
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	var kept *unstructured.Unstructured
	var err error
	if before == nil {
		kept, err = client.Create(t.Context(), object, strict)
	} else {
		var created *unstructured.Unstructured
		if created, err = client.Create(t.Context(), before, strict); err != nil {
			t.Fatalf("what was before the edit: %v", err)
		}
		object.SetResourceVersion(created.GetResourceVersion())
		kept, err = client.Update(t.Context(), object, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	}
	if before != nil || err == nil {
		if err := client.Delete(context.WithoutCancel(t.Context()), object.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		return err
	}
	if diff := cmp.Diff(object.Object["spec"], kept.Object["spec"]); diff != "" {
		return errors.New("what is kept is not what was written (-written +kept):\n" + diff)
	}
	return nil
}

func resource(t *testing.T, kind string) dynamic.ResourceInterface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", shared.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	plural := map[string]string{"ClusterPolicy": "clusterpolicies", "NVIDIADriver": "nvidiadrivers", "GPUNode": "gpunodes"}[kind]
	return client.Resource(v1alpha1.GroupVersion.WithResource(plural))
}

// TestA20TwoPolicies checks that an administrator who applies a second ClusterPolicy gets an error with the name of the first.
func TestA20TwoPolicies(t *testing.T) {
	remove(t, "clusterpolicy", "default")
	const policy = "apiVersion: tessera.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: %}\n"
	if _, err := shared.kubectl(t.Context(), []byte(strings.ReplaceAll(policy, "%", "default")), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	_, err := shared.kubectl(t.Context(), []byte(strings.ReplaceAll(policy, "%", "mine")), "apply", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "the ClusterPolicy must be named default; edit the existing one") {
		t.Errorf("a second policy: %v, want it refused with what to do", err)
	}
	// A client that edits gets the error too, and nothing changes.
	_, err = shared.kubectl(t.Context(), nil, "patch", "clusterpolicy", "default", "--type=merge", "-p", `{"spec":{"upgrade":{"maxUnavailable":"300%"}}}`)
	if err == nil || !strings.Contains(err.Error(), "must be a number of nodes from 1, or a percentage from 1% to 100%") {
		t.Errorf("a wrong edit: %v, want it refused with what is right", err)
	}
	out, err := shared.kubectl(t.Context(), nil, "get", "clusterpolicy", "default", "-o", "jsonpath={.spec}")
	if err != nil || strings.Contains(out, "300") {
		t.Errorf("after a wrong edit the policy is %s, %v", out, err)
	}
}

// TestShownByKubectl checks what kubectl shows of each kind: the short names, and the columns with values of the status.
func TestShownByKubectl(t *testing.T) {
	tests := []struct {
		name, shortName, object, status string
		want                            [][]string
	}{
		{"default", "gpupolicy", "kind: ClusterPolicy\nmetadata: {name: default}\n",
			`{"nodes":{"total":8,"ready":5,"upgrading":1,"blocked":0,"failed":2},"gpus":{"unhealthy":3,"fatal":1,"held":1},"conditions":[{"type":"Ready","status":"False","reason":"NodesFailed","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`,
			[][]string{{"NAME", "READY", "NODES", "READYNODES", "UPGRADING", "FAILED", "UNHEALTHYGPUS", "REASON", "AGE"}, {"default", "False", "8", "5", "1", "2", "3", "NodesFailed"}}},
		{"h100", "gpudriver", "kind: NVIDIADriver\nmetadata: {name: h100}\nspec: {version: 580.105.08, default: true}\n",
			`{"nodes":{"total":3,"ready":3,"upgrading":0,"blocked":0,"failed":0},"conditions":[{"type":"Ready","status":"True","reason":"Reconciled","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`,
			[][]string{{"NAME", "VERSION", "DEFAULT", "READY", "NODES", "READYNODES", "REASON", "AGE"}, {"h100", "580.105.08", "true", "True", "3", "3", "Reconciled"}}},
		{"node-1", "gn", "kind: GPUNode\nmetadata: {name: node-1}\n",
			`{"phase":"Upgrading","step":"Drain","reason":"PodsRemain","since":"2026-01-01T00:00:00Z","agent":{"version":"v1","podUID":"a","bootID":"b","ready":true,"driverVersion":"580.105.08","gpus":8,"product":"NVIDIA-H100"},"conditions":[{"type":"GPUsHealthy","status":"False","reason":"Faults","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`,
			[][]string{{"NAME", "PHASE", "STEP", "DRIVER", "GPUS", "HEALTHY", "PRODUCT", "REASON", "SINCE"}, {"node-1", "Upgrading", "Drain", "580.105.08", "8", "False", "NVIDIA-H100", "PodsRemain"}}},
	}
	for _, test := range tests {
		t.Run(test.shortName, func(t *testing.T) {
			remove(t, test.shortName, test.name)
			if _, err := shared.kubectl(t.Context(), []byte("apiVersion: tessera.dev/v1alpha1\n"+test.object), "apply", "-f", "-"); err != nil {
				t.Fatal(err)
			}
			patch := `{"status":` + test.status + `}`
			if _, err := shared.kubectl(t.Context(), nil, "patch", test.shortName, test.name, "--subresource=status", "--type=merge", "-p", patch); err != nil {
				t.Fatal(err)
			}
			out, err := shared.kubectl(t.Context(), nil, "get", test.shortName)
			if err != nil {
				t.Fatal(err)
			}
			var got [][]string
			for line := range strings.Lines(out) {
				got = append(got, strings.Fields(line))
			}
			if len(got) == 2 && len(got[1]) > 0 {
				got[1] = got[1][:len(got[1])-1] // the age
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("kubectl get %s (-want +got):\n%s", test.shortName, diff)
			}
		})
	}
}

// TestStatusIsApart checks that who edits the spec cannot write a status.
func TestStatusIsApart(t *testing.T) {
	remove(t, "clusterpolicy", "default")
	const object = "apiVersion: tessera.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: default}\nstatus: {observedGeneration: 7}\n"
	if _, err := shared.kubectl(t.Context(), []byte(object), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	out, err := shared.kubectl(t.Context(), nil, "get", "clusterpolicy", "default", "-o", "jsonpath={.metadata.generation}/{.status.observedGeneration}")
	if err != nil || out != "1/" {
		t.Errorf("generation/observedGeneration is %q, %v, want 1/", out, err)
	}
}

// TestExplained checks that kubectl explains a field as the source comments it.
func TestExplained(t *testing.T) {
	out, err := shared.kubectl(t.Context(), nil, "explain", "clusterpolicy.spec.upgrade.soak")
	if err != nil || !strings.Contains(out, "how long the canaries must stay Ready") {
		t.Errorf("kubectl explain: %q, %v", out, err)
	}
}

// remove takes an object away before and after the test.
func remove(t *testing.T, kind, name string) {
	t.Helper()
	gone := func() {
		if _, err := shared.kubectl(context.WithoutCancel(t.Context()), nil, "delete", kind, name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	}
	gone()
	t.Cleanup(gone)
}
