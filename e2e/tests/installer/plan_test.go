package installer

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/upgrade"
)

// TestPlanOfAnEdit requests the plan of policies that are not applied: the API server validates them and stores nothing.
func TestPlanOfAnEdit(t *testing.T) {
	const before = `
apiVersion: tessera.dev/v1alpha1
kind: ClusterPolicy
metadata: {name: default}
spec: {driver: {version: "570.1"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: tessera-installer-images, namespace: default}
data: {images.yaml: "driver: registry.example.com/driver"}
---
apiVersion: v1
kind: Node
metadata: {name: plan-a}
---
apiVersion: tessera.dev/v1alpha1
kind: GPUNode
metadata: {name: plan-a}
spec: {driver: {source: Container, digest: of-another-driver, owner: ClusterPolicy/default}}
`
	remove(t, "clusterpolicies.tessera.dev", "default")
	remove(t, "gpunode", "plan-a")
	remove(t, "node", "plan-a")
	if _, err := shared.kubectl(t.Context(), []byte(before), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, "configmap", "tessera-installer-images") })
	const status = `{"status":{"phase":"Ready","lastGoodDriver":{"source":"Container","digest":"of-another-driver"},` +
		`"hardware":{"bootID":"1","gpus":8,"kernel":"6.8.0","os":"ubuntu24.04","architecture":"amd64"}}}`
	if _, err := shared.kubectl(t.Context(), nil, "patch", "gpunode", "plan-a", "--subresource=status", "--type=merge", "-p", status); err != nil {
		t.Fatal(err)
	}
	const edit = "apiVersion: tessera.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: default}\nspec: {driver: {version: \"580.1\"}, upgrade: {maxUnavailable: %}}\n"
	out, err := tessera(t, strings.ReplaceAll(edit, "%", "1"), "plan", "-f", "-", "--color=never")
	if err != nil || !strings.Contains(out, "  1 node to change, 0 pods to lose GPUs, in this order:\n") || !strings.Contains(out, "plan-a") {
		t.Errorf("a newer driver: %v\n%s", err, out)
	}
	if out, err := tessera(t, strings.ReplaceAll(edit, "%", "0"), "plan", "-f", "-"); err == nil || !strings.Contains(err.Error(), "must be a number of nodes from 1") {
		t.Errorf("a policy that would be refused: %v\n%s", err, out)
	}
	kept, err := shared.kubectl(t.Context(), nil, "get", "clusterpolicies.tessera.dev", "default", "-o", "jsonpath={.spec.driver.version} {.metadata.generation}")
	if err != nil || kept != "570.1 1" {
		t.Errorf("after the plan the policy has the version and generation %q, %v", kept, err)
	}
}

// tessera runs the verb upgrade.
func tessera(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	flags := cluster.NewFlags()
	*flags.KubeConfig, flags.SystemNamespace = shared.Kubeconfig, "default"
	cmd := upgrade.Command(flags)
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}
