package installer

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tessera-gpu/tessera/e2e/env/chart"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	crdfiles "github.com/tessera-gpu/tessera/installer/crds"
)

// upgrade runs helm upgrade with these flags.
func (s *site) upgrade(t *testing.T, h chart.Helm, flags ...string) error {
	t.Helper()
	_, err := h.Run(t.Context(), slices.Concat([]string{"upgrade", chart.Release, h.Folder, "--namespace", home, "--no-hooks"}, flags)...)
	return err
}

// TestChartAtAnAPIServer: the API server rejects what helm cannot check, before anything changes, with the name of the field.
func TestChartAtAnAPIServer(t *testing.T) {
	s := newSite(t)
	h, err := chart.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.Kubeconfig = s.plane.Kubeconfig
	policy := dynamic.NewForConfigOrDie(s.config).Resource(policies)
	for flag, want := range map[string]string{
		"clusterPolicy.discovery.source=Guess":       "spec.discovery.source",
		"clusterPolicy.drivers.enabled=false":        "drivers",
		"clusterPolicy.upgrade.maxParallel=-1":       "spec.upgrade.maxParallel",
		"clusterPolicy.driver.kernelModuleType=free": "spec.driver.kernelModuleType",
	} {
		if err := s.upgrade(t, h, "--set", flag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("helm upgrade --set %s: %v, want %q", flag, err, want)
		}
	}
	version := func(ctx context.Context) string {
		object, err := policy.Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spec, _ := object.Object["spec"].(map[string]any)
		driver, _ := spec["driver"].(map[string]any)
		text, _ := driver["version"].(string)
		return text
	}
	if err := s.upgrade(t, h, "--set", "clusterPolicy.driver.version=1.2.3"); err != nil || version(t.Context()) != "1.2.3" {
		t.Errorf("after an upgrade the version is %q, %v", version(t.Context()), err)
	}
	by := []byte(`{"spec":{"driver":{"version":"4.5.6"}}}`)
	if _, err := policy.Patch(t.Context(), "default", types.MergePatchType, by, metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
		t.Fatal(err)
	}
	if err := s.upgrade(t, h, "--set", "clusterPolicy.driver.version=7.8.9"); err == nil || !strings.Contains(err.Error(), "kubectl-edit") || version(t.Context()) != "4.5.6" {
		t.Errorf("an edit by hand was overwritten: %q, %v", version(t.Context()), err)
	}
	if err := s.upgrade(t, h, "--set", "clusterPolicy.driver.version=7.8.9", "--force-conflicts"); err != nil || version(t.Context()) != "7.8.9" {
		t.Errorf("with force the version is %q, %v", version(t.Context()), err)
	}
	if _, err := h.Run(t.Context(), "uninstall", chart.Release, "--namespace", home, "--no-hooks"); err != nil {
		t.Fatal(err)
	}
	left, err := s.plane.Client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range left.Items {
		if strings.HasPrefix(role.Name, "tessera-") && role.Name != "tessera-crds" {
			t.Errorf("%s is left after helm uninstall", role.Name)
		}
	}
}

// run runs the installer's program as an account of the chart, as the hooks' Jobs do.
func (s *site) run(t *testing.T, program string, who identity, args ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), program, append(args, "--kubeconfig="+s.kubeconfig(t, who))...).CombinedOutput()
	if err != nil {
		t.Errorf("%v as %s: %v\n%s", args, who.account, err, output)
	}
	return string(output)
}

// kubeconfig returns the file with which a program connects as the account.
func (s *site) kubeconfig(t *testing.T, who identity) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthority: s.config.CAFile}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: who.token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestHooksDoTheirWorkAsTheirAccounts: kinds of an older release become those of this one, and removal gets to its end.
func TestHooksDoTheirWorkAsTheirAccounts(t *testing.T) {
	s := newSite(t)
	program := filepath.Join(t.TempDir(), "tessera-installer")
	if err := harness.Build(t.Context(), program, "./cmd/tessera-installer"); err != nil {
		t.Fatal(err)
	}
	kinds := dynamic.NewForConfigOrDie(s.config).Resource(crds)
	old := []byte(`{"metadata":{"annotations":{"` + crdfiles.HashAnnotation + `":"old"}}}`)
	released, err := crdfiles.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range released {
		if _, err := kinds.Patch(t.Context(), kind.Name, types.MergePatchType, old, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.run(t, program, s.as(t, "tessera-crds", "node1"), "crds")
	for _, kind := range released {
		got, err := kinds.Get(t.Context(), kind.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if want := kind.Annotations[crdfiles.HashAnnotation]; got.GetAnnotations()[crdfiles.HashAnnotation] != want {
			t.Errorf("%s is of %q, want %q", kind.Name, got.GetAnnotations()[crdfiles.HashAnnotation], want)
		}
	}
	output := s.run(t, program, s.as(t, "tessera-installer", "node2"), "cleanup", "--namespace="+home, "--timeout="+harness.Patience.String())
	if strings.Contains(output, "forbidden") || !strings.Contains(output, "remove everything else") {
		t.Errorf("output of the removal:\n%s", output)
	}
}

// failJob sets the condition Failed of a Job, once it exists.
func (s *site) failJob(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	jobs, now := s.plane.Client.BatchV1().Jobs(home), metav1.Now()
	err := harness.Poll(ctx, func(ctx context.Context) error {
		job, err := jobs.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		job.Status.StartTime = &now
		for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
		}
		_, err = jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAReleaseWhoseRemovalWasRefusedComesBack: helm takes it for half removed then, and upgrades it only after a rollback to itself.
func TestAReleaseWhoseRemovalWasRefusedComesBack(t *testing.T) {
	s := newSite(t)
	h, err := chart.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.Kubeconfig = s.plane.Kubeconfig
	uninstall := func(flags ...string) error {
		_, err := h.Run(t.Context(), slices.Concat([]string{"uninstall", chart.Release, "--namespace", home}, flags)...)
		return err
	}
	// No controller runs the hook's Job here: the test sets its status to failed. A short timeout could end before helm has recorded the start of
	// the removal.
	ended := make(chan error, 1)
	go func() { ended <- uninstall("--timeout", harness.Patience.String()) }()
	s.failJob(t, "tessera-cleanup")
	if err := <-ended; err == nil {
		t.Fatal("a hook that fails is no reason to refuse")
	}
	if _, err := s.plane.Client.AppsV1().Deployments(home).Get(t.Context(), "tessera-installer", metav1.GetOptions{}); err != nil {
		t.Errorf("something was removed: %v", err)
	}
	if err := s.upgrade(t, h, "--reuse-values", "--set", "cleanup.drain=true"); err == nil {
		t.Error("helm upgrades without a rollback: docs/uninstall.md can be shorter")
	}
	if _, err := h.Run(t.Context(), "rollback", chart.Release, "1", "--namespace", home, "--no-hooks"); err != nil {
		t.Fatal(err)
	}
	if err := s.upgrade(t, h, "--reuse-values", "--set", "cleanup.drain=true"); err != nil {
		t.Error(err)
	}
	if err := uninstall("--no-hooks"); err != nil {
		t.Error(err)
	}
}

// TestChartAppliedByAGitOpsTool: Argo CD and kubectl apply the output of helm template, without hooks, and their client-side apply stores it in an
// annotation of limited size. A second apply changes nothing, and the Job of the removal is created by hand.
func TestChartAppliedByAGitOpsTool(t *testing.T) {
	h, err := chart.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	programs, err := harness.ClusterPrograms(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server, err := harness.StartPlane(t.Context(), t.TempDir(), programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	p := &plane{Plane: server, kubectlPath: filepath.Join(programs[binaries.Kubernetes], "kubectl")}
	kubectl := func(input string, args ...string) string {
		t.Helper()
		output, err := p.kubectl(t.Context(), []byte(input), args...)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	template := func(flags ...string) string {
		t.Helper()
		output, err := h.Run(t.Context(), append([]string{"template", chart.Release, h.Folder, "--namespace", home, "--kube-version", "v1.37.0"}, flags...)...)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	kubectl("", "create", "namespace", home)
	kubectl("", "apply", "-f", filepath.Join(h.Folder, "crds"))
	kubectl("", "wait", "--for=condition=Established", "crd", "--all", "--timeout="+harness.Patience.String())
	objects := template("--include-crds", "--no-hooks")
	for _, flags := range [][]string{nil, {"--server-side", "--force-conflicts"}} {
		args := append([]string{"apply", "--validate=strict", "-f", "-"}, flags...)
		kubectl(objects, args...)
		if output := kubectl(objects, append(args, "--output=name")...); !strings.Contains(output, "clusterpolicy.tessera.dev/default") {
			t.Errorf("apply %v: no ClusterPolicy in:\n%s", flags, output)
		}
		kubectl(objects, append([]string{"diff", "-f", "-"}, flags...)...)
	}
	output := kubectl(template("--show-only", "templates/hooks/cleanup.yaml"), "create", "-f", "-")
	if !strings.Contains(output, "job.batch/tessera-cleanup created") {
		t.Errorf("the Job of the removal: %s", output)
	}
}
