// Package kueue runs Kueue in a lab and follows docs/tasks/kueue.md: two teams with quota in GPUs, MIG devices and memory, borrowing and preemption. Kueue is the
// program of its module with its own chart. Root is required.
package kueue

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/kueue"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/pages"
)

const page = "docs/tasks/kueue.md"

func TestQuotaForTwoTeams(t *testing.T) {
	if err := harness.CheckRoot(); err != nil {
		t.Skip(err)
	}
	source, err := binaries.Source()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(source, page))
	if err != nil {
		t.Fatal(err)
	}
	k, err := kueue.New(t.Context(), t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.ForTest(t, "kueue", cluster.Config{}, cluster.Up)
	if err := c.LoadImage(t.Context(), k.Image); err != nil {
		t.Fatal(err)
	}
	shell, err := c.NewShell(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shell.Dir = t.TempDir()
	if err := pages.WriteFiles(shell.Dir, string(text)); err != nil {
		t.Fatal(err)
	}
	published := "oci://registry.k8s.io/kueue/charts/kueue --version " + k.Version
	if strings.Count(string(text), published) != 1 {
		t.Fatalf("%s does not install %s", page, published)
	}
	// The chart in the module has the images of a branch, the published one those of the release.
	ours := k.Chart + " --set controllerManager.manager.image.repository=" + k.Repository + ",controllerManager.manager.image.tag=v" + k.Version +
		",controllerManager.manager.image.pullPolicy=IfNotPresent"
	limited := false
	for _, step := range pages.Steps(strings.Replace(string(text), published, ours, 1)) {
		if strings.HasPrefix(step.Line, "kubectl delete") && !limited {
			limited = true
			checkLimits(t, shell)
		}
		t.Log("$ ", step.Line)
		out, err := step.Run(t.Context(), shell)
		t.Log(out)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// checkLimits checks the table of limits, while all GPUs of the quotas are in use. Each job is in the queue of team blue.
func checkLimits(t *testing.T, shell cluster.Shell) {
	t.Helper()
	const (
		claims  = "      resourceClaims:\n      - {name: device, resourceClaimTemplateName: NAME}\n"
		devices = "        resources: {claims: [{name: device}]}\n"
	)
	for name, test := range map[string]struct{ request, claims, resources, want string }{
		"alternatives": {"firstAvailable: [{name: a, deviceClassName: gpu.tessera.dev}]", claims, devices, "FirstAvailable device selection is not supported"},
		"all":          {"exactly: {deviceClassName: gpu.tessera.dev, allocationMode: All}", claims, devices, "AllocationMode 'All' is not supported"},
		"unmapped":     {"exactly: {deviceClassName: timeshare.tessera.dev}", claims, devices, "timeshare.tessera.dev"},
		"largest": {
			`exactly: {deviceClassName: mig.tessera.dev, selectors: [{cel: {expression: "device.capacity['gpu.tessera.dev'].memory.compareTo(quantity('9Gi')) >= 0"}}]}`,
			claims, devices, "insufficient unused quota for tessera.dev/mig-memory",
		},
		"extended": {
			"exactly: {deviceClassName: gpu.tessera.dev}", "", "        resources: {limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1}}\n",
			"insufficient unused quota for tessera.dev/gpus",
		},
		"limit":   {"exactly: {deviceClassName: gpu.tessera.dev}", "", "        resources: {limits: {nvidia.com/gpu: 1}}\n", "resource nvidia.com/gpu unavailable in ClusterQueue"},
		"by-name": {"exactly: {deviceClassName: gpu.tessera.dev}", strings.Replace(claims, "resourceClaimTemplateName", "resourceClaimName", 1), devices, "does not support use of resource claims"},
	} {
		text := strings.ReplaceAll(fmt.Sprintf(limitedJob, test.request, test.request, test.claims, test.resources), "NAME", name)
		if err := os.WriteFile(filepath.Join(shell.Dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := shell.Run(t.Context(), "kubectl apply -n blue -f "+name+".yaml"); err != nil {
			t.Fatal(err)
		}
		message := pages.Step{
			Line:   `kubectl get workloads -n blue -o jsonpath='{range .items[?(@.metadata.ownerReferences[0].name=="` + name + `")]}{.status.conditions[?(@.type=="QuotaReserved")].message}{end}'`,
			Output: "…" + test.want + "…",
		}
		out, err := message.Run(t.Context(), shell)
		t.Log(name, ": ", out)
		if err != nil {
			t.Error(err)
		}
		if _, err := shell.Run(t.Context(), "kubectl delete -n blue -f "+name+".yaml"); err != nil {
			t.Fatal(err)
		}
	}
}

// limitedJob is a job with a request for devices.
const limitedJob = `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: NAME}
spec:
  spec:
    devices:
      requests:
      - name: device
        %s
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME}
spec:
  devices:
    requests:
    - name: device
      %s
---
apiVersion: batch/v1
kind: Job
metadata:
  name: NAME
  labels: {kueue.x-k8s.io/queue-name: jobs}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
%s      containers:
      - name: cuda
        image: nvcr.io/nvidia/cuda:12.6.3-base-ubuntu24.04
        command: [sleep, infinity]
%s`
