package verify

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/internal/capability"
)

// built returns flags that name a scheduler for each minor version of Kubernetes, by the digest that is returned.
func built(minors ...string) (flags []string) {
	for _, minor := range minors {
		flags = append(flags, "--set", "images.scheduler.kubernetes."+strings.ReplaceAll(minor, ".", `\.`)+".digest="+digestOf(minor))
	}
	return flags
}

// digestOf returns a digest that differs by the minor version of Kubernetes.
func digestOf(minor string) string {
	return "sha256:" + strings.Repeat("0", 62) + minor[len(minor)-2:]
}

// TestChartSelectsTheScheduler: of the schedulers of a release, the chart selects the newest that is not newer than the API server and at most one minor version
// older. Without one, the installer gets the reason, and no policy refuses the allocations of other schedulers or assigns pods to it.
func TestChartSelectsTheScheduler(t *testing.T) {
	const repository = "localhost/tessera/scheduler"
	one, two := built("1.37"), built("1.37", "1.38")
	only := func(version, minors string) string {
		return "the API server had version " + version + " when the chart was applied, and the release has tessera-scheduler of Kubernetes " + minors + " only"
	}
	for name, test := range map[string]struct {
		version string
		flags   []string
		image   string
		reason  string
	}{
		"1.36":                         {"v1.36.5", one, "", only("v1.36.5", "1.37")},
		"1.37":                         {"v1.37.2", one, repository + "@" + digestOf("1.37"), ""},
		"1.38":                         {"v1.38.0", one, repository + "@" + digestOf("1.37"), ""},
		"1.39":                         {"v1.39.1", one, "", only("v1.39.1", "1.37")},
		"2.37":                         {"v2.37.0", one, "", only("v2.37.0", "1.37")},
		"1.37 of two":                  {"v1.37.2", two, repository + "@" + digestOf("1.37"), ""},
		"1.38 of two":                  {"v1.38.0", two, repository + "@" + digestOf("1.38"), ""},
		"1.39 of two":                  {"v1.39.1", two, repository + "@" + digestOf("1.38"), ""},
		"1.40 of two":                  {"v1.40.0", two, "", only("v1.40.0", "1.37, 1.38")},
		"a provider's suffix":          {"v1.37.2-eks-abc", one, repository + "@" + digestOf("1.37"), ""},
		"a distribution's suffix":      {"v1.38.1+k3s1", one, repository + "@" + digestOf("1.37"), ""},
		"a candidate":                  {"v1.38.0-rc.1", two, repository + "@" + digestOf("1.38"), ""},
		"a provider's plus":            {"1.37+", one, repository + "@" + digestOf("1.37"), ""},
		"a provider's plus, one older": {"v1.38.2+", one, repository + "@" + digestOf("1.37"), ""},
		"without a patch":              {"1.37", one, repository + "@" + digestOf("1.37"), ""},
		"by tag":                       {"v1.38.0", []string{"--set-json", `images={"tag":"v1","scheduler":{"kubernetes":{"1.37":{}}}}`}, repository + ":v1-kubernetes-1.37", ""},
		"of another repository":        {"v1.37.0", append(built("1.37"), "--set", `images.scheduler.kubernetes.1\.37.repository=example.com/s`), "example.com/s@" + digestOf("1.37"), ""},
		"mirrored":                     {"v1.37.0", append(built("1.37"), "--set", "images.scheduler.repository=example.com/m"), "example.com/m@" + digestOf("1.37"), ""},
		"one for all versions":         {"v1.39.1", nil, repository + ":dev", ""},
		"one for all versions on 1.36": {"v1.36.5", nil, repository + ":dev", ""},
		"the policy's":                 {"v1.39.1", append(built("1.37"), "--set", "clusterPolicy.scheduler.image=example.com/own:1"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := templated(t, "tessera-system", append([]string{"--kube-version", test.version}, test.flags...)...)
			images := releaseImages(t, objects)
			if images.Scheduler != test.image || images.NoScheduler != test.reason {
				t.Errorf("image %q, reason %q; want %q, %q", images.Scheduler, images.NoScheduler, test.image, test.reason)
			}
			server := capability.Server{TaintRules: !strings.HasPrefix(test.version, "v1.36"), NoScheduler: images.NoScheduler}
			for _, policy := range []string{"allocations.gpu.tessera.dev", "schedulername.gpu.tessera.dev"} {
				if got := slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == policy }); got != server.Scheduler() {
					t.Errorf("policy %s: %t, and the installer deploys the scheduler: %t", policy, got, server.Scheduler())
				}
			}
		})
	}
}

// TestChartMergesPushes: values of several `make push` name all their schedulers, and the other images of the last.
func TestChartMergesPushes(t *testing.T) {
	first := append(built("1.36"), "--set", "images.node.digest="+digestOf("1.36"))
	images := releaseImages(t, templated(t, "tessera-system", append(first, append(built("1.37"), "--set", "images.node.digest="+digestOf("1.37"))...)...))
	if !strings.HasSuffix(images.Scheduler, digestOf("1.37")) || !strings.HasSuffix(images.Node, digestOf("1.37")) {
		t.Errorf("images %+v", images)
	}
}

// releaseImages returns the images that the chart names.
func releaseImages(t *testing.T, objects []*unstructured.Unstructured) render.Images {
	t.Helper()
	var images render.Images
	text := named[*corev1.ConfigMap](t, strict(t, objects), "tessera-installer-images").Data["images.yaml"]
	if err := sigsyaml.UnmarshalStrict([]byte(text), &images); err != nil {
		t.Fatal(err)
	}
	return images
}
