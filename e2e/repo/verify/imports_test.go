package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// row lists the imports that the packages of one folder may have beyond the standard library and themselves.
type row struct {
	// path is a package below the module; with /... everything below it too.
	path string
	// may are packages of this module, written below it, or modules of others; each includes the packages
	// below it. A single * allows everything except NVML.
	may []string
}

const nvml = "github.com/NVIDIA/go-nvml"

var (
	kubernetesTypes = []string{"k8s.io/api", "k8s.io/apimachinery"}
	errgroup        = "golang.org/x/sync"
	klog            = "k8s.io/klog/v2"
	otel            = "go.opentelemetry.io/otel"
)

// law is the table of allowed imports of the architecture, one row per package. A package without a row is an
// error, so that a new package is a decision. The first row that matches applies.
var law = []row{
	{"api/gpu", nil},
	{"api/gpu/catalog", []string{"api/gpu"}},
	{"api/gpu/gputest", []string{"api/gpu", "api/gpu/catalog"}},
	{"api/wire", append([]string{"api/gpu", "k8s.io/utils"}, kubernetesTypes...)},
	{"api/v1alpha1", []string{"api/gpu", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/json", "sigs.k8s.io/yaml"}},
	{"api/params", append([]string{"api/gpu", "api/v1alpha1", "sigs.k8s.io/json"}, kubernetesTypes...)},

	{"dra-driver/nvml", []string{"internal/host/cgroup", "internal/host/pci", "api/gpu", nvml, klog, "golang.org/x/sys"}},
	{"dra-driver/cuda", nil},
	{"dra-driver/validate", []string{"internal/host/command", "dra-driver/cuda", "dra-driver/nvml"}},
	{"dra-driver/pci", []string{"internal/host/pci", "api/gpu", klog}},
	{"dra-driver/smi", []string{"internal/host/smi", "api/gpu", klog}},
	{"dra-driver/health", []string{"api/gpu", klog}},
	{"dra-driver/inventory", []string{"api/gpu", klog}},
	{"dra-driver/publish", append([]string{"api/gpu", "api/v1alpha1", "api/wire", klog, "k8s.io/client-go", "k8s.io/dynamic-resource-allocation/resourceslice"}, kubernetesTypes...)},

	{"kubelet-plugin/prepare", append([]string{"internal/host/disk", "internal/host/lock", "api", klog, otel, errgroup}, kubernetesTypes...)},
	{"kubelet-plugin/checkpoint", []string{"internal/host/atomicfile", "internal/host/disk", "internal/host/lock", "api/gpu", "api/params", "kubelet-plugin/prepare", klog}},
	{"kubelet-plugin/driverroot", []string{"internal/host/bootid", "kubelet-plugin/hook/ldso", klog, "golang.org/x/sys", "github.com/cyphar/filepath-securejoin"}},
	{"kubelet-plugin/diagnosis", []string{"api/gpu"}},
	{"kubelet-plugin/cdi", []string{"internal/host/atomicfile", "internal/host/disk", "api/gpu", "api/params", "kubelet-plugin/prepare", "kubelet-plugin/driverroot", "kubelet-plugin/hook", klog, "tags.cncf.io/container-device-interface", "golang.org/x/sys"}},
	{"kubelet-plugin/hook", []string{"internal/host/atomicfile", "internal/host/cgroup", "internal/host/disk", "kubelet-plugin/hook/ldso", "golang.org/x/sys", "github.com/cyphar/filepath-securejoin"}},
	{"kubelet-plugin/hook/ldso", nil},
	{"kubelet-plugin/limiter", []string{"internal/host/atomicfile", "internal/host/disk", "api/gpu", "kubelet-plugin/diagnosis", "kubelet-plugin/hook", "kubelet-plugin/prepare", "k8s.io/apimachinery/pkg/api/resource", klog}},
	{"kubelet-plugin/mps", append([]string{"internal/host/atomicfile", "internal/host/command", "internal/host/disk", "internal/host/lock", "api/gpu", "kubelet-plugin/prepare", klog, "k8s.io/client-go", "golang.org/x/sys"}, kubernetesTypes...)},
	{"kubelet-plugin/monitoring", []string{"api/v1alpha1"}},
	{"kubelet-plugin/devnode", []string{"kubelet-plugin/driverroot", klog, "golang.org/x/sys"}},
	{"kubelet-plugin/vfio", []string{"internal/host/modprobe", "api/gpu", klog, "golang.org/x/sys"}},
	{"kubelet-plugin/status", append([]string{"api/gpu", "api/wire", "kubelet-plugin/diagnosis", "kubelet-plugin/prepare", klog, "k8s.io/client-go", "github.com/prometheus/client_golang"}, kubernetesTypes...)},
	{"kubelet-plugin/podresources", []string{"k8s.io/kubelet", "google.golang.org/grpc"}},
	{"kubelet-plugin/exporter", []string{"api/gpu", "kubelet-plugin/diagnosis", "kubelet-plugin/limiter", "kubelet-plugin/podresources", "kubelet-plugin/prepare", "k8s.io/kubelet", "github.com/prometheus/client_golang"}},
	{"kubelet-plugin/maintenance", []string{"internal/host/atomicfile", "internal/host/disk", "internal/host/lock", "api/gpu", "api/v1alpha1", "kubelet-plugin/prepare", klog}},
	{"kubelet-plugin/gpunode", append([]string{"internal/liveness", "api/gpu", "api/v1alpha1", "api/wire", "kubelet-plugin/diagnosis", "kubelet-plugin/maintenance", klog, "k8s.io/client-go"}, kubernetesTypes...)},
	{"kubelet-plugin/handover", []string{"internal/host/disk", "internal/host/lock", klog, errgroup, "golang.org/x/sys"}},
	{"kubelet-plugin/server", append([]string{"api", "kubelet-plugin/diagnosis", "kubelet-plugin/podresources", "kubelet-plugin/prepare", klog, otel, errgroup, "k8s.io/client-go", "k8s.io/dynamic-resource-allocation", "k8s.io/kubelet", "github.com/prometheus/client_golang", "google.golang.org/grpc"}, kubernetesTypes...)},

	{"scheduler-plugin/fit/topology", []string{"api/gpu"}},
	{"scheduler-plugin/fit", []string{"api/gpu", "scheduler-plugin/fit/topology"}},
	{"scheduler-plugin/index", append([]string{"api/gpu", "api/wire", "scheduler-plugin/fit", "scheduler-plugin/fit/topology", klog, "k8s.io/client-go", "k8s.io/dynamic-resource-allocation", "k8s.io/utils"}, kubernetesTypes...)},
	{"scheduler-plugin/requirements", append([]string{"api/gpu", "api/wire", "scheduler-plugin/fit", "scheduler-plugin/index", klog, "k8s.io/dynamic-resource-allocation", "k8s.io/utils", "github.com/google/cel-go"}, kubernetesTypes...)},
	{"scheduler-plugin/rank", append([]string{"scheduler-plugin/fit", "scheduler-plugin/index", "scheduler-plugin/requirements", "k8s.io/utils"}, kubernetesTypes...)},
	{"scheduler-plugin/preemption/victims", []string{"api/gpu", "scheduler-plugin/fit"}},
	{"scheduler-plugin/defrag", []string{"api/gpu", "scheduler-plugin/fit", "scheduler-plugin/preemption/victims"}},
	{"scheduler-plugin/intree", append([]string{"api/gpu", "scheduler-plugin/fit", "scheduler-plugin/index", klog, "k8s.io/client-go", "k8s.io/kube-scheduler", "k8s.io/kubernetes/pkg/scheduler", "k8s.io/dynamic-resource-allocation"}, kubernetesTypes...)},
	{"scheduler-plugin/preemption", append([]string{"scheduler-plugin/fit", "scheduler-plugin/index", "scheduler-plugin/intree", "scheduler-plugin/preemption/victims", "scheduler-plugin/requeue", "scheduler-plugin/requirements", "api/gpu", "api/wire", klog, "k8s.io/client-go", "k8s.io/component-helpers", "k8s.io/kube-scheduler", "k8s.io/kubernetes/pkg/scheduler"}, kubernetesTypes...)},
	{"scheduler-plugin/nodecheck", append([]string{"api/v1alpha1", klog, "k8s.io/component-helpers", "k8s.io/kube-scheduler", "k8s.io/kubernetes/pkg/scheduler"}, kubernetesTypes...)},
	{"scheduler-plugin/extended", append([]string{"scheduler-plugin/requirements", "k8s.io/client-go", "k8s.io/kube-scheduler", "k8s.io/kubernetes/pkg/scheduler"}, kubernetesTypes...)},
	{"scheduler-plugin/podgroup", append([]string{"api/gpu", "scheduler-plugin/fit/topology", "scheduler-plugin/index", "scheduler-plugin/rank", "scheduler-plugin/requirements", "k8s.io/client-go", "k8s.io/kube-scheduler"}, kubernetesTypes...)},
	{"scheduler-plugin/requeue", append([]string{"scheduler-plugin/index", "k8s.io/utils"}, kubernetesTypes...)},
	{"scheduler-plugin/plugin/...", append([]string{"internal/liveness", "scheduler-plugin", "api/gpu", "api/v1alpha1", "api/wire", klog, "k8s.io/client-go", "k8s.io/component-base", "k8s.io/component-helpers", "k8s.io/apiserver", "k8s.io/kube-scheduler", "k8s.io/kubernetes", "k8s.io/dynamic-resource-allocation", "k8s.io/utils", "sigs.k8s.io/json", "sigs.k8s.io/yaml"}, kubernetesTypes...)},

	{"installer/crds", []string{"k8s.io/apiextensions-apiserver", "sigs.k8s.io/yaml"}},
	{"installer/phase", append([]string{"api/v1alpha1"}, kubernetesTypes...)},
	{"installer/rollout", append([]string{"api/v1alpha1"}, kubernetesTypes...)},
	{"installer/remediation", append([]string{"installer/phase", "api/gpu", "api/v1alpha1"}, kubernetesTypes...)},
	{"installer/render", append([]string{"api/v1alpha1", "sigs.k8s.io/controller-runtime/pkg/client", "sigs.k8s.io/yaml"}, kubernetesTypes...)},
	{"installer/action", append([]string{"installer/phase", "installer/remediation", "installer/render", "api/v1alpha1", klog, "k8s.io/client-go", "sigs.k8s.io/controller-runtime/pkg/client"}, kubernetesTypes...)},
	{"installer/host/...", []string{"internal/host", "installer/host", klog, "github.com/fsnotify/fsnotify", "k8s.io/cri-api", "google.golang.org/grpc", "golang.org/x/sys", "github.com/cyphar/filepath-securejoin", "github.com/pelletier/go-toml/v2"}},
	{"installer/discovery", append([]string{"installer/host", "api/v1alpha1", klog, "k8s.io/client-go"}, kubernetesTypes...)},
	{"installer/migrate", []string{"api/v1alpha1", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/yaml"}},
	{"installer/controller/informers", append([]string{"installer/action", "installer/render", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}, kubernetesTypes...)},
	{"installer/controller/trigger", append([]string{"sigs.k8s.io/controller-runtime"}, kubernetesTypes...)},
	{"installer/controller/report", append([]string{"api/v1alpha1", "sigs.k8s.io/controller-runtime", "github.com/prometheus/client_golang"}, kubernetesTypes...)},
	{"installer/controller/catalog", append([]string{"installer/phase", "installer/render", "api/v1alpha1", "sigs.k8s.io/controller-runtime"}, kubernetesTypes...)},
	{"installer/controller/nodestate", append([]string{"installer/controller/catalog", "installer/controller/informers", "installer/action", "installer/host", "installer/phase", "installer/render", "api", "sigs.k8s.io/controller-runtime"}, kubernetesTypes...)},
	{"installer/controller/drain", append([]string{"installer/controller/informers", "installer/controller/report", "installer/action", "installer/phase", "installer/render", "api/v1alpha1", "sigs.k8s.io/controller-runtime"}, kubernetesTypes...)},
	{"installer/controller/validation", append([]string{"installer/controller/catalog", "installer/action", "installer/phase", "installer/render", "api/v1alpha1", "sigs.k8s.io/controller-runtime"}, kubernetesTypes...)},
	{"installer/controller/remediation", append([]string{"installer/controller/catalog", "installer/controller/drain", "installer/controller/nodestate", "installer/controller/report", "installer/controller/trigger", "installer/controller/validation", "installer/action", "installer/phase", "installer/remediation", "api", klog, "sigs.k8s.io/controller-runtime"}, kubernetesTypes...)},
	{"installer/controller/node", append([]string{"internal/liveness", "installer/controller/catalog", "installer/controller/drain", "installer/controller/informers", "installer/controller/nodestate", "installer/controller/remediation", "installer/controller/report", "installer/controller/trigger", "installer/controller/validation", "installer/action", "installer/phase", "installer/render", "api", klog, "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}, kubernetesTypes...)},
	{"installer/controller/policy", append([]string{"internal/liveness", "installer/controller/catalog", "installer/controller/drain", "installer/controller/informers", "installer/controller/nodestate", "installer/controller/report", "installer/controller/trigger", "installer/action", "installer/phase", "installer/render", "installer/rollout", "api", klog, "k8s.io/client-go", "k8s.io/component-helpers", "sigs.k8s.io/controller-runtime"}, kubernetesTypes...)},
	{"installer/controller/controllertest", append([]string{"installer/controller/catalog", "installer/controller/informers", "installer/controller/trigger", "installer/render", "api", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}, kubernetesTypes...)},
	{"installer/controller", append([]string{"internal/capability", "internal/scrape", "github.com/go-logr/logr", "installer/controller", "installer/action", "installer/render", "api/v1alpha1", klog, "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/prometheus/client_golang"}, kubernetesTypes...)},

	{"internal/host/atomicfile", []string{"internal/host/disk"}},
	{"internal/host/bootid", nil},
	{"internal/host/cgroup", nil},
	{"internal/host/command", nil},
	{"internal/host/disk", nil},
	{"internal/host/disk/disktest", []string{"internal/host/disk"}},
	{"internal/liveness", nil},
	{"internal/version", nil},
	{"internal/logs", []string{"github.com/spf13/cobra", "k8s.io/component-base/logs"}},
	{"internal/tracing", []string{klog, otel}},
	{"internal/host/lock", []string{"internal/host/disk", "golang.org/x/sys"}},
	{"internal/host/modprobe", []string{"internal/host/command", "github.com/cyphar/filepath-securejoin"}},
	{"internal/host/namespacetest", []string{"golang.org/x/sys"}},
	{"internal/host/pci", nil},
	{"internal/host/smi", nil},
	{"internal/capability", append([]string{"k8s.io/client-go/discovery", "k8s.io/client-go/rest"}, kubernetesTypes...)},
	{"internal/capability/capabilitytest", kubernetesTypes},
	{"internal/scrape", append([]string{klog, "k8s.io/client-go"}, kubernetesTypes...)},

	{"cmd/...", []string{"*"}},
	{"deployments/...", []string{"*"}},
	{"e2e/hardware/...", []string{"*", nvml}},
	{"e2e/...", []string{"*"}},
}

// components never import each other; only cmd/ and e2e/ may import all.
var components = []string{"dra-driver", "kubelet-plugin", "scheduler-plugin", "installer"}

func TestImportLaw(t *testing.T) {
	for _, p := range goList(t, "./...") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, complaint := range breaches(path, p.Imports) {
			t.Error(complaint)
		}
		for _, complaint := range testBreaches(path, slices.Concat(p.TestImports, p.XTestImports)) {
			t.Error(complaint)
		}
	}
}

func TestNoProductBinaryLinksTests(t *testing.T) {
	for _, command := range goList(t, "./cmd/...") {
		if command.Name != "main" {
			continue
		}
		for _, p := range goList(t, "-deps", command.ImportPath) {
			path := strings.TrimPrefix(p.ImportPath, module+"/")
			if under(path, "api/gpu/gputest") || under(path, "internal/host/disk/disktest") || under(path, "internal/host/namespacetest") || under(path, "internal/capability/capabilitytest") || under(path, "e2e") || p.ImportPath == "testing" {
				t.Errorf("%s links %s: the product must not contain tests or fakes", command.ImportPath, p.ImportPath)
			}
			if under(path, "api/gpu/catalog") && command.ImportPath != module+"/cmd/tessera" {
				t.Errorf("%s links %s: programs in a cluster read the hardware, or what agents publish", command.ImportPath, p.ImportPath)
			}
		}
	}
}

// TestOnlyTheNodeProgramUsesCgo checks that every other program builds with CGO_ENABLED=0: no package that it
// links, the standard library aside, has a file that needs cgo.
func TestOnlyTheNodeProgramUsesCgo(t *testing.T) {
	found := map[string]bool{}
	for _, command := range goList(t, "./cmd/...") {
		if command.Name != "main" {
			continue
		}
		for _, p := range goList(t, "-deps", command.ImportPath) {
			if p.Standard || len(p.CgoFiles) == 0 {
				continue
			}
			found[command.ImportPath] = true
			if command.ImportPath != module+"/cmd/tessera-node" {
				t.Errorf("%s links %s, which needs cgo", command.ImportPath, p.ImportPath)
			}
		}
	}
	if !found[module+"/cmd/tessera-node"] {
		t.Error("no cgo in cmd/tessera-node, which links NVML: is cgo disabled here?")
	}
}

// breaches returns every import that the table does not allow the package.
func breaches(path string, imports []string) []string {
	i := slices.IndexFunc(law, func(r row) bool { return r.covers(path) })
	if i < 0 {
		return []string{fmt.Sprintf("%s: no row in the import law: add one to e2e/repo/verify/imports_test.go, and to the table of its folder's README", path)}
	}
	var complaints []string
	for _, imported := range imports {
		if standard(imported) || law[i].allows(strings.TrimPrefix(imported, module+"/")) {
			continue
		}
		complaints = append(complaints, fmt.Sprintf("%s imports %s: the import law allows it only %q", path, imported, law[i].may))
	}
	return complaints
}

// testBreaches returns every import of the package's tests that crosses from one component to another. Other
// imports of tests are not restricted.
func testBreaches(path string, imports []string) []string {
	home, _, _ := strings.Cut(path, "/")
	var complaints []string
	for _, imported := range imports {
		other, _, _ := strings.Cut(strings.TrimPrefix(imported, module+"/"), "/")
		if slices.Contains(components, other) && other != home && home != "cmd" && home != "e2e" {
			complaints = append(complaints, fmt.Sprintf("a test of %s imports %s: components never import each other", path, imported))
		}
	}
	return complaints
}

func (r row) covers(path string) bool {
	if folder, all := strings.CutSuffix(r.path, "/..."); all {
		return under(path, folder)
	}
	return path == r.path
}

func (r row) allows(imported string) bool {
	if slices.Contains(r.may, "*") && !under(imported, nvml) {
		return true
	}
	return slices.ContainsFunc(r.may, func(may string) bool { return under(imported, may) })
}

// under reports whether path is the folder or lies below it.
func under(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// standard reports whether the package is of the standard library: its first element has no dot.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

func TestBreaches(t *testing.T) {
	tests := map[string]struct {
		path    string
		imports []string
		want    int
	}{
		"standard library":          {"api/gpu", []string{"fmt", "encoding/json"}, 0},
		"the model stays alone":     {"api/gpu", []string{"k8s.io/klog/v2"}, 1},
		"an api never a component":  {"api/wire", []string{module + "/dra-driver/nvml"}, 1},
		"an api never the host":     {"api/wire", []string{module + "/internal/host/atomicfile"}, 1},
		"the host stays below":      {"internal/host/lock", []string{module + "/api/gpu"}, 1},
		"the hook's locks":          {"kubelet-plugin/hook", []string{module + "/internal/host/lock"}, 1},
		"ours, allowed":             {"dra-driver/publish", []string{module + "/api/wire", "k8s.io/api/resource/v1"}, 0},
		"one component, another":    {"kubelet-plugin/prepare", []string{module + "/dra-driver/nvml"}, 1},
		"NVML has one door":         {"cmd/tessera-node", []string{nvml + "/pkg/nvml", module + "/dra-driver/nvml"}, 1},
		"the door itself":           {"dra-driver/nvml", []string{nvml + "/pkg/nvml"}, 0},
		"a prefix is not a folder":  {"dra-driver/smi", []string{module + "/api/gpux"}, 1},
		"cmd imports any component": {"cmd/tessera-node", []string{module + "/kubelet-plugin/server"}, 0},
		"a package without a row":   {"kubelet-plugin/utils", nil, 1},
		"the model's row is exact":  {"api/gpu/catalog", []string{module + "/api/gpu", "k8s.io/api/core/v1"}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := breaches(test.path, test.imports); len(got) != test.want {
				t.Errorf("breaches: got %q, want %d", got, test.want)
			}
		})
	}
	got := testBreaches("dra-driver/publish", []string{module + "/kubelet-plugin/cdi", module + "/e2e/fake/fakegpu", "testing"})
	want := []string{"a test of dra-driver/publish imports " + module + "/kubelet-plugin/cdi: components never import each other"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("testBreaches (-want +got):\n%s", diff)
	}
}
