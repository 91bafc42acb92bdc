package verify

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tessera-gpu/tessera/cmd/tessera/bundle"
	"github.com/tessera-gpu/tessera/cmd/tessera/check"
	"github.com/tessera-gpu/tessera/cmd/tessera/claims"
	clusterflags "github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/defrag"
	"github.com/tessera-gpu/tessera/cmd/tessera/doctor"
	"github.com/tessera-gpu/tessera/cmd/tessera/explain"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
	"github.com/tessera-gpu/tessera/cmd/tessera/migrate"
	"github.com/tessera-gpu/tessera/cmd/tessera/quota"
	"github.com/tessera-gpu/tessera/cmd/tessera/remediation"
	"github.com/tessera-gpu/tessera/cmd/tessera/shares"
	clistatus "github.com/tessera-gpu/tessera/cmd/tessera/status"
	clitemplate "github.com/tessera-gpu/tessera/cmd/tessera/template"
	"github.com/tessera-gpu/tessera/cmd/tessera/upgrade"
	"github.com/tessera-gpu/tessera/cmd/tessera/version"
	blocks "github.com/tessera-gpu/tessera/e2e/env/pages"
	"github.com/tessera-gpu/tessera/installer/crds"
	"github.com/tessera-gpu/tessera/kubelet-plugin/server"
	"github.com/tessera-gpu/tessera/kubelet-plugin/status"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	made    = regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)")
	run     = regexp.MustCompile("(?m)(?:^|`)(?:kubectl )?(tessera [a-z][^`#\n]*)")
	class   = regexp.MustCompile(`\b[a-z0-9.-]+\.(?:tessera\.dev|nvidia\.com)\b`)
	metric  = regexp.MustCompile("`(tessera_[a-z_]+)`")
	applied = regexp.MustCompile(`(?m)kubectl (?:apply|delete) -[fk] (deployments[\w/.-]*\w)`)
	reason  = regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)`")
)

// pages calls visit with every page that users read.
func pages(t *testing.T, visit func(page, text string)) {
	t.Helper()
	files(t, func(path, text string) {
		if path == "README.md" || strings.HasPrefix(path, "docs/") {
			visit(path, text)
		}
	}, ".md")
}

// TestLinksLeadSomewhere follows every relative link of every page, to its heading.
func TestLinksLeadSomewhere(t *testing.T) {
	files(t, func(page, text string) {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			there := filepath.Join(root(t), path.Dir(page), target)
			if target == "" {
				there = filepath.Join(root(t), page)
			}
			if _, err := os.Stat(there); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, found[1])
				continue
			}
			if anchor == "" {
				continue
			}
			read, err := os.ReadFile(there)
			if err != nil || !slices.Contains(anchors(string(read)), anchor) {
				t.Errorf("%s links to %s, a heading that does not exist", page, found[1])
			}
		}
	}, ".md")
}

// TestDecisionsAreListed checks that the page of the decision records has every record once, by its title, and that their numbers have no gap.
func TestDecisionsAreListed(t *testing.T) {
	const folder = "docs/dev/decisions"
	index, err := os.ReadFile(filepath.Join(root(t), folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob(filepath.Join(root(t), folder, "[0-9]*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, record := range records {
		text, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		number, title, _ := strings.Cut(strings.TrimPrefix(line, "# "), " ")
		if want := fmt.Sprintf("%04d", i+1); number != want || !strings.HasPrefix(filepath.Base(record), want+"-") {
			t.Errorf("%s: record %q, want number %s", filepath.Base(record), line, want)
		}
		if entry := fmt.Sprintf("- [%s](%s) %s\n", number, filepath.Base(record), title); strings.Count(string(index), entry) != 1 {
			t.Errorf("%s/README.md: has %q %d times, want once", folder, entry, strings.Count(string(index), entry))
		}
	}
}

// anchors are the headings of a page in the form of links.
func anchors(text string) []string {
	var all []string
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		words := strings.Fields(strings.ToLower(found[1]))
		anchor := strings.Join(words, "-")
		all = append(all, regexp.MustCompile(`[^a-z0-9-]`).ReplaceAllString(anchor, ""))
	}
	return all
}

// TestPagesNameWhatExists checks targets of make, commands with their flags, folders of manifests,
// DeviceClasses, metrics and reasons.
func TestPagesNameWhatExists(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadFile(filepath.Join(root(t), "docs/dev/surface.txt"))
	if err != nil {
		t.Fatal(err)
	}
	known := knownNames(t)
	reasons := []string{status.ReasonTimeSliceNotApplied, status.ReasonMemoryLimitFailed, status.ReasonMemoryLimitChanged, status.ReasonDaemonRestarted, fit.ReasonTooComplex, "PrepareFailed"}
	for _, r := range server.Refusals() {
		reasons = append(reasons, r.Reason)
	}
	for _, file := range []string{
		"installer/phase/reason.go", "installer/remediation/reason.go", "api/v1alpha1/attempt.go", "installer/host/preflight/preflight.go",
	} {
		text, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "([A-Z]\w+)"`).FindAllStringSubmatch(string(text), -1) {
			reasons = append(reasons, found[1])
		}
	}
	pages(t, func(page, text string) {
		for _, found := range made.FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`(?m)^` + found[1] + `:`).Match(makefile) {
				t.Errorf("%s: make %s: no such target", page, found[1])
			}
		}
		for _, found := range run.FindAllStringSubmatch(text, -1) {
			if err := understand(found[1]); err != nil {
				t.Errorf("%s: %s: %v", page, found[1], err)
			}
		}
		for _, found := range applied.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root(t), found[1])); err != nil {
				t.Errorf("%s: %s does not exist", page, found[1])
			}
		}
		for _, name := range class.FindAllString(text, -1) {
			if !slices.Contains(known, name) && name != "requests.nvidia.com" { // a resource of quotas
				t.Errorf("%s: no object is named %s", page, name)
			}
		}
		for _, found := range metric.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(names), "\n"+found[1]+" {") {
				t.Errorf("%s: no metric %s", page, found[1])
			}
		}
		for _, found := range reason.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(reasons, found[1]) {
				t.Errorf("%s: no code uses the reason %s", page, found[1])
			}
		}
	})
}

// knownNames are the names below tessera.dev and nvidia.com that a page may use.
func knownNames(t *testing.T) []string {
	t.Helper()
	names := []string{
		"gpu.tessera.dev", "gpu.nvidia.com", "resource.nvidia.com", "compute-domain.nvidia.com",
		"clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com", // drivers, groups, kinds
		"docs.nvidia.com",
	}
	kinds, err := crds.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		names = append(names, kind.Name)
	}
	for _, folder := range []string{"deployments", "deployments/nvidia", schedulerCommon, schedulerAdditional} {
		for _, file := range manifests(t, folder) {
			for _, object := range file {
				if named, ok := object.(metav1.Object); ok {
					names = append(names, named.GetName())
				}
			}
		}
	}
	files(t, func(_, text string) {
		for _, found := range regexp.MustCompile(`(?m)^  policyName: (\S+)$`).FindAllStringSubmatch(text, -1) {
			names = append(names, found[1])
		}
	}, ".yaml")
	return names
}

// understand parses a command of a page: the verb and its flags must exist.
func understand(line string) error {
	flags := clusterflags.NewFlags()
	top := &cobra.Command{Use: "tessera"}
	flags.Add(top.PersistentFlags())
	top.AddCommand(
		gpus.Command(flags), doctor.Command(flags), claims.Command(flags), explain.Command(flags), defrag.Command(flags),
		check.Command(), migrate.Command(), clitemplate.Command(), upgrade.Command(flags), remediation.Command(flags), shares.Command(flags), clistatus.Command(flags), quota.Command(flags), bundle.Command(flags), version.Command(flags))
	top.AddCommand(&cobra.Command{Use: "options"})
	args := strings.Fields(line)[1:]
	verb, rest, err := top.Find(args)
	if err != nil {
		return err
	}
	return verb.ParseFlags(rest)
}

// foreignFile matches files of other programs, which their tests run; checkedKinds matches manifests with parameters.
var (
	foreignFile  = regexp.MustCompile(`(?m)^kind: Kustomization$|^ *apiVersion: (config\.)?kueue\.x-k8s\.io/`)
	checkedKinds = regexp.MustCompile(`(?m)^kind: (ResourceClaim|ResourceClaimTemplate|DeviceClass|NodeConfig)$`)
)

// TestPagesShowValidManifests decodes every manifest of every page as strictly as the API server, and
// checks its parameters as the agent does.
func TestPagesShowValidManifests(t *testing.T) {
	shown := 0
	pages(t, func(page, text string) {
		for i, block := range blocks.Blocks(text) {
			if block.Language != "yaml" || !strings.Contains(block.Text, "kind: ") || foreignFile.MatchString(block.Text) {
				continue
			}
			shown++
			file := filepath.Join(t.TempDir(), "manifest.yaml")
			if err := os.WriteFile(file, []byte(block.Text), 0o600); err != nil {
				t.Fatal(err)
			}
			if decoded := decode(t, page, block.Text); len(decoded) == 0 {
				t.Errorf("%s, block %d: no object", page, i+1)
			}
			if !checkedKinds.MatchString(block.Text) {
				continue
			}
			var output bytes.Buffer
			command := check.Command()
			command.SetArgs([]string{"-f", file})
			command.SetOut(&output)
			command.SetErr(&output)
			if err := command.ExecuteContext(t.Context()); err != nil {
				t.Errorf("%s, block %d: %v\n%s", page, i+1, err, output.String())
			}
		}
	})
	if shown < 2 {
		t.Errorf("found only %d manifests: check the pattern of this test", shown)
	}
}

// TestPagesShowValuesThatTheChartTakes renders the chart with every block of values and every flag that a page shows, and reads the
// ClusterPolicy as strictly as the API server does.
func TestPagesShowValuesThatTheChartTakes(t *testing.T) {
	sets, valued := regexp.MustCompile(`--set ([\w.]+=\S+)`), regexp.MustCompile("`((?:clusterPolicy|installer|networkPolicy|cleanup|images)\\.[\\w.]+): (\\w+)`")
	shown, values := 0, keysOfValues(t)
	pages(t, func(page, text string) {
		for _, found := range append(sets.FindAllStringSubmatch(text, -1), valued.FindAllStringSubmatch(text, -1)...) {
			rendered(t, "--set", strings.Join(found[1:], "="))
		}
		for _, block := range blocks.Blocks(text) {
			if block.Language != "yaml" || !values.haveAll(block.Text) {
				continue
			}
			shown++
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(block.Text), 0o600); err != nil {
				t.Fatal(err)
			}
			objects := slices.DeleteFunc(templated(t, "tessera-system", "-f", file), func(object *unstructured.Unstructured) bool {
				return object.GroupVersionKind().Group == "monitoring.coreos.com" // TestChartMonitors reads them
			})
			if found := strict(t, objects)["ClusterPolicy"]; len(found) != 1 {
				t.Errorf("%s: %d ClusterPolicies", page, len(found))
			}
		}
	})
	if shown < 3 {
		t.Errorf("found only %d blocks of values: check the pattern of this test", shown)
	}
}
