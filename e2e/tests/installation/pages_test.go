package installation

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/pages"
)

// reader is who follows the pages: a shell in a copy of the repository, and the names by which the reader replaces those of the pages.
type reader struct {
	shell cluster.Shell
	known *strings.Replacer
}

// follow runs the commands of a page, one after the other. Additional names come as pairs of the name on the page and its replacement.
func (r *reader) follow(ctx context.Context, page string, names ...string) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(r.shell.Dir, page))
	Expect(err).NotTo(HaveOccurred())
	replaced := strings.NewReplacer(names...).Replace(r.known.Replace(string(text)))
	steps := pages.Steps(replaced)
	Expect(steps).NotTo(BeEmpty(), "command lines of %s", page)
	Expect(pages.WriteFiles(r.shell.Dir, replaced)).To(Succeed())
	for _, s := range steps {
		step(s).run(ctx, r.shell)
	}
}

// followsPages covers the pages of the documentation: all their commands, on a cluster that begins and ends without Tessera.
func followsPages() {
	var r reader
	BeforeAll(func(ctx context.Context) {
		// A registry for make push. The nodes do not pull from it: helm gets the lab's images.
		images := httptest.NewServer(registry.New(registry.Logger(stdlog.New(io.Discard, "", 0))))
		DeferCleanup(images.Close)
		r = reader{newReader(ctx), strings.NewReplacer("registry.example.com", strings.TrimPrefix(images.URL, "http://"), "NODE", older,
			"595.91.07", cluster.NewDriver, "REVISION", "1",
			"oci://ghcr.io/tessera-gpu/tessera/charts/tessera", "deployments/helm/tessera -f bin/deploy/values.yaml")}
	})

	It("leads through docs/install.md to a running pod", Label("install"), func(ctx context.Context) {
		r.follow(ctx, "docs/install.md")
		for _, name := range bare() {
			Expect(gpuNode(ctx, name).Status.Phase).To(Equal(v1alpha1.PhaseReady))
		}
	}, limit)

	for _, page := range []string{
		"tasks/four-teams.md", "tasks/notebooks.md", "tasks/inference.md", "tasks/pending-pods.md", "autoscaling.md", "cli.md", "health.md", "secure-boot.md",
	} {
		It("leads through docs/"+page, func(ctx context.Context) { r.follow(ctx, "docs/"+page) }, limit)
	}
	usesTessera(&r)
	operatesTessera(&r)
}

// usesTessera covers what users do.
func usesTessera(r *reader) {
	It("runs the manifest of README.md", func(ctx context.Context) {
		text, err := os.ReadFile(filepath.Join(r.shell.Dir, "README.md"))
		Expect(err).NotTo(HaveOccurred())
		manifest := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
		Expect(manifest).To(HaveLen(2))
		Expect(os.WriteFile(filepath.Join(r.shell.Dir, "first.yaml"), manifest[1], 0o644)).To(Succeed())
		step{Line: "kubectl apply -f first.yaml"}.run(ctx, r.shell)
		step{Line: "kubectl wait --for=jsonpath='{.status.phase}'=Succeeded pod/first --timeout=5m"}.run(ctx, r.shell)
		step{Line: "kubectl logs first", Output: "GPU 0: … (UUID: GPU-…)\n  MIG … Device  0: (UUID: MIG-…)"}.run(ctx, r.shell)
	}, limit)

	It("runs pods written for the device plugin unchanged", func(ctx context.Context) {
		room := newRoom(ctx)
		pods := fmt.Sprintf(devicePluginPods, cluster.VectorAddImage, cluster.CUDAImage)
		Expect(os.WriteFile(filepath.Join(r.shell.Dir, "pods.yaml"), []byte(pods), 0o644)).To(Succeed())
		step{Line: "kubectl apply -n " + room.name + " -f pods.yaml"}.run(ctx, r.shell)
		step{Line: "kubectl wait -n " + room.name + " --for=jsonpath='{.status.phase}'=Succeeded pod/cuda-vectoradd pod/mig --timeout=5m"}.run(ctx, r.shell)
		step{Line: "kubectl logs -n " + room.name + " cuda-vectoradd", Output: "…Test PASSED…"}.run(ctx, r.shell)
		step{Line: "kubectl logs -n " + room.name + " mig", Output: "GPU 0: … (UUID: GPU-…)\n  MIG 1g.10gb … Device  0: (UUID: MIG-…)"}.run(ctx, r.shell)
	}, limit)

	It("runs the verbs of the CLI", func(ctx context.Context) {
		shareFull(ctx, r.shell)
		step{Line: "tessera gpus", Output: "…share-most…"}.run(ctx, r.shell)
		step{Line: "tessera claims", Output: "…share-most…"}.run(ctx, r.shell)
		step{Line: "tessera doctor"}.run(ctx, r.shell)
		step{Line: "tessera upgrade plan"}.run(ctx, r.shell)
	}, limit)

	It("leads through docs/troubleshooting.md for a pod that stays Pending", func(ctx context.Context) {
		shareFull(ctx, r.shell)
		step{Line: "tessera explain pod/share-rest", Output: "pod/share-rest: fits on no node…" + ampere + "…"}.run(ctx, r.shell)
		r.follow(ctx, "docs/troubleshooting.md", "POD", "share-rest", "NAMESPACE", "default")
	}, limit)
}

// operatesTessera covers what administrators do, and removes Tessera. Most of it takes minutes, and runs in make test-long.
func operatesTessera(r *reader) {
	It("leads through docs/tasks/monitoring.md", Label("long"), func(ctx context.Context) {
		const group = "monitoring.coreos.com"
		kinds := looseKind(group, "v1", "Namespaced", "podmonitors", "PodMonitor") + looseKind(group, "v1", "Namespaced", "prometheusrules", "PrometheusRule")
		Expect(os.WriteFile(filepath.Join(r.shell.Dir, "kinds.yaml"), []byte(kinds), 0o644)).To(Succeed())
		step{Line: "kubectl apply -f kinds.yaml"}.run(ctx, r.shell)
		step{Line: "kubectl wait --for=condition=Established -f kinds.yaml --timeout=1m"}.run(ctx, r.shell)
		r.follow(ctx, "docs/tasks/monitoring.md")
	}, limit)

	It("leads through docs/tasks/air-gap.md", Label("long"), func(ctx context.Context) {
		for _, name := range []string{"mirror.list", "ca.crt"} {
			Expect(os.WriteFile(filepath.Join(r.shell.Dir, name), nil, 0o644)).To(Succeed())
		}
		r.follow(ctx, "docs/tasks/air-gap.md")
	}, limit)

	It("leads through docs/vgpu.md", Label("long"), func(ctx context.Context) {
		for _, name := range []string{"gridd.conf", "client_configuration_token.tok"} {
			Expect(os.WriteFile(filepath.Join(r.shell.Dir, name), nil, 0o644)).To(Succeed())
		}
		r.follow(ctx, "docs/vgpu.md")
	}, limit)

	It("leads through docs/scheduler.md", Label("long"), func(ctx context.Context) {
		r.follow(ctx, "docs/scheduler.md", "NAMESPACE", newRoom(ctx).name)
	}, limit)

	It("leads through docs/from-device-plugin.md", func(ctx context.Context) {
		kind := looseKind("nvidia.com", "v1", "Cluster", "clusterpolicies", "ClusterPolicy")
		Expect(os.WriteFile(filepath.Join(r.shell.Dir, "kind.yaml"), []byte(kind), 0o644)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { step{Line: "kubectl delete -f kind.yaml"}.run(ctx, r.shell) })
		step{Line: "kubectl apply -f kind.yaml"}.run(ctx, r.shell)
		step{Line: "kubectl wait --for=condition=Established crd/clusterpolicies.nvidia.com --timeout=1m"}.run(ctx, r.shell)
		step{Line: "kubectl apply -f " + filepath.Join(gpuOperator, "policy-container.yaml")}.run(ctx, r.shell)
		for file, source := range map[string]string{"values.yaml": "values-small.yaml", "drivers.yaml": "drivers.yaml", "config.yaml": "mig-parted.yaml"} {
			step{Line: "cp " + filepath.Join(gpuOperator, source) + " " + file}.run(ctx, r.shell)
		}
		r.follow(ctx, "docs/from-device-plugin.md")
		policy, err := os.ReadFile(filepath.Join(r.shell.Dir, "policy.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(policy)).To(ContainSubstring("kind: ClusterPolicy"))
		Expect(gpuNode(ctx, older).Status.Phase).To(Equal(v1alpha1.PhaseReady))
	}, limit)

	It("leads through docs/upgrade.md", Label("long"), func(ctx context.Context) { r.follow(ctx, "docs/upgrade.md") }, limit)

	It("leads through docs/gitops.md and docs/uninstall.md", Label("long"), func(ctx context.Context) {
		r.follow(ctx, "docs/gitops.md")
		r.follow(ctx, "docs/uninstall.md")
	}, limit)

	It("leads through docs/quickstart.md", Label("long"), func(ctx context.Context) { r.follow(ctx, "docs/quickstart.md") }, limit)
}

// gpuOperator is the folder with configurations of the GPU Operator.
const gpuOperator = "installer/migrate/testdata"

// looseKind returns the kind of another project, without its schema: tests of the chart and of the migration read its objects strictly.
func looseKind(group, version, scope, plural, kind string) string {
	return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec:
  group: %[1]s
  scope: %[3]s
  names: {plural: %[4]s, singular: %[5]s, kind: %[6]s, listKind: %[6]sList}
  versions:
  - {name: %[2]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, group, version, scope, plural, strings.ToLower(kind), kind)
}

// devicePluginPods are pods as the documentation of NVIDIA's device plugin and GPU Operator shows them to verify an installation. They name neither a
// scheduler nor a claim.
const devicePluginPods = `
apiVersion: v1
kind: Pod
metadata:
  name: cuda-vectoradd
spec:
  restartPolicy: OnFailure
  containers:
  - name: cuda-vectoradd
    image: %s
    resources:
      limits:
        nvidia.com/gpu: 1
---
apiVersion: v1
kind: Pod
metadata:
  name: mig
spec:
  restartPolicy: OnFailure
  containers:
  - name: mig
    image: %s
    command: [sh, -c, nvidia-smi -L && exec sleep 2]
    resources:
      limits:
        nvidia.com/mig-1g.10gb: 1
`

// newReader returns the shell of a reader of the documentation, in a copy of the repository. What make installs comes first in its PATH.
func newReader(ctx context.Context) cluster.Shell {
	GinkgoHelper()
	source, err := binaries.Source()
	Expect(err).NotTo(HaveOccurred())
	clone, folder := GinkgoT().TempDir(), GinkgoT().TempDir()
	const files = `git -C "$1" ls-files -z --cached --others --exclude-standard | tar -C "$1" --null -T - --ignore-failed-read -cf - | tar -C "$2" -xf -`
	out, err := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", files, "-", source, clone).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	shell, err := c.NewShell(ctx, folder, filepath.Join(folder, "usr", "local", "bin"))
	Expect(err).NotTo(HaveOccurred())
	shell.Dir = clone
	shell.Setenv("DESTDIR", folder)
	return shell
}

// shareFull applies the example of a pod with a share of a GPU and one that does not fit on it, until the end of the spec.
func shareFull(ctx context.Context, shell cluster.Shell) {
	GinkgoHelper()
	step{Line: "kubectl apply -f deployments/examples/share-full.yaml"}.run(ctx, shell)
	DeferCleanup(func(ctx context.Context) {
		step{Line: "kubectl delete -f deployments/examples/share-full.yaml"}.run(ctx, shell)
	})
	step{Line: "kubectl wait --for=condition=Ready pod/share-most --timeout=5m"}.run(ctx, shell)
}

// step is a step of a page.
type step pages.Step

// run runs the step and prints its output.
func (s step) run(ctx context.Context, shell cluster.Shell) {
	GinkgoHelper()
	By(s.Line)
	out, err := pages.Step(s).Run(ctx, shell)
	GinkgoWriter.Println(out)
	Expect(err).NotTo(HaveOccurred())
}
