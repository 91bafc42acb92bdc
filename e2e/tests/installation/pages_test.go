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

// documentation covers the pages: their commands, run one after the other in a copy of the repository, on a cluster without Tessera.
func documentation() {
	Describe("as the documentation shows", Ordered, followsPages)
}

func followsPages() {
	var shell cluster.Shell
	var known *strings.Replacer // the names that a reader replaces
	BeforeAll(func(ctx context.Context) {
		// A registry for make push. The nodes do not pull from it: helm gets the lab's images.
		images := httptest.NewServer(registry.New(registry.Logger(stdlog.New(io.Discard, "", 0))))
		DeferCleanup(images.Close)
		known = strings.NewReplacer("registry.example.com", strings.TrimPrefix(images.URL, "http://"), "NODE", older)
		shell = newReader(ctx)
	})
	follow := func(ctx context.Context, page string) {
		GinkgoHelper()
		text, err := os.ReadFile(filepath.Join(shell.Dir, page))
		Expect(err).NotTo(HaveOccurred())
		steps := pages.Steps(known.Replace(string(text)))
		Expect(len(steps)).To(BeNumerically(">=", 3), "command lines of %s", page)
		Expect(pages.WriteFiles(shell.Dir, string(text))).To(Succeed())
		for _, s := range steps {
			step(s).run(ctx, shell)
		}
	}

	It("leads through docs/install.md to a running pod", func(ctx context.Context) {
		follow(ctx, "docs/install.md")
		for _, name := range bare() {
			Expect(gpuNode(ctx, name).Status.Phase).To(Equal(v1alpha1.PhaseReady))
		}
	}, limit)

	for _, task := range []string{"four-teams", "notebooks", "inference"} {
		It("leads through docs/tasks/"+task+".md", func(ctx context.Context) {
			follow(ctx, "docs/tasks/"+task+".md")
		}, limit)
	}

	It("runs the manifest of README.md", func(ctx context.Context) {
		text, err := os.ReadFile(filepath.Join(shell.Dir, "README.md"))
		Expect(err).NotTo(HaveOccurred())
		manifest := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
		Expect(manifest).To(HaveLen(2))
		Expect(os.WriteFile(filepath.Join(shell.Dir, "first.yaml"), manifest[1], 0o644)).To(Succeed())
		step{Line: "kubectl apply -f first.yaml"}.run(ctx, shell)
		step{Line: "kubectl wait --for=jsonpath='{.status.phase}'=Succeeded pod/first --timeout=5m"}.run(ctx, shell)
		step{Line: "kubectl logs first", Output: "GPU 0: … (UUID: GPU-…)\n  MIG … Device  0: (UUID: MIG-…)"}.run(ctx, shell)
	}, limit)

	It("runs pods written for the device plugin unchanged", func(ctx context.Context) {
		r := newRoom(ctx)
		pods := fmt.Sprintf(devicePluginPods, cluster.VectorAddImage, cluster.CUDAImage)
		Expect(os.WriteFile(filepath.Join(shell.Dir, "pods.yaml"), []byte(pods), 0o644)).To(Succeed())
		step{Line: "kubectl apply -n " + r.name + " -f pods.yaml"}.run(ctx, shell)
		step{Line: "kubectl wait -n " + r.name + " --for=jsonpath='{.status.phase}'=Succeeded pod/cuda-vectoradd pod/mig --timeout=5m"}.run(ctx, shell)
		step{Line: "kubectl logs -n " + r.name + " cuda-vectoradd", Output: "…Test PASSED…"}.run(ctx, shell)
		step{Line: "kubectl logs -n " + r.name + " mig", Output: "GPU 0: … (UUID: GPU-…)\n  MIG 1g.10gb … Device  0: (UUID: MIG-…)"}.run(ctx, shell)
	}, limit)

	It("runs the verbs of the CLI", func(ctx context.Context) {
		shareFull(ctx, shell)
		step{Line: "tessera gpus", Output: "…share-most…"}.run(ctx, shell)
		step{Line: "tessera claims", Output: "…share-most…"}.run(ctx, shell)
		step{Line: "tessera doctor"}.run(ctx, shell)
		step{Line: "tessera upgrade plan"}.run(ctx, shell)
	}, limit)

	It("explains why a pod stays Pending", func(ctx context.Context) {
		shareFull(ctx, shell)
		step{Line: "tessera explain pod/share-rest", Output: "pod/share-rest: fits on no node…" + ampere + "…"}.run(ctx, shell)
	}, limit)

	It("leads through docs/from-device-plugin.md", func(ctx context.Context) {
		Expect(os.WriteFile(filepath.Join(shell.Dir, "kind.yaml"), []byte(operatorKind), 0o644)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { step{Line: "kubectl delete -f kind.yaml"}.run(ctx, shell) })
		step{Line: "kubectl apply -f kind.yaml"}.run(ctx, shell)
		step{Line: "kubectl wait --for=condition=Established crd/clusterpolicies.nvidia.com --timeout=1m"}.run(ctx, shell)
		step{Line: "kubectl apply -f " + filepath.Join(gpuOperator, "policy-container.yaml")}.run(ctx, shell)
		for file, source := range map[string]string{"values.yaml": "values-small.yaml", "drivers.yaml": "drivers.yaml", "config.yaml": "mig-parted.yaml"} {
			step{Line: "cp " + filepath.Join(gpuOperator, source) + " " + file}.run(ctx, shell)
		}
		follow(ctx, "docs/from-device-plugin.md")
		policy, err := os.ReadFile(filepath.Join(shell.Dir, "policy.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(policy)).To(ContainSubstring("kind: ClusterPolicy"))
		Expect(gpuNode(ctx, older).Status.Phase).To(Equal(v1alpha1.PhaseReady))
	}, limit)
}

// gpuOperator is the folder with configurations of the GPU Operator. operatorKind is its kind, without the schema.
const (
	gpuOperator  = "installer/migrate/testdata"
	operatorKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterpolicies.nvidia.com}
spec:
  group: nvidia.com
  scope: Cluster
  names: {plural: clusterpolicies, singular: clusterpolicy, kind: ClusterPolicy, listKind: ClusterPolicyList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
)

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
