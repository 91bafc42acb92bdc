package installer

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// TestRenderedObjectsAreAccepted shows a real API server everything that the installer renders: for a cluster whose administrator decided nothing, for one in
// which everything is on, and for one with simulated hardware. The golden files are what is rendered: the tests of installer/render hold them to it.
func TestRenderedObjectsAreAccepted(t *testing.T) {
	harness.SkipOn136(t, "it serves no DeviceTaintRule, which the installer does not render there")
	const home = "tessera-rendered"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home, Labels: map[string]string{resourceapi.DRAAdminNamespaceLabelKey: "true"}}}
	if _, err := shared.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	source, err := binaries.Source()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"default", "everything", "simulated"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(source, "installer", "render", "testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			text = bytes.ReplaceAll(text, []byte("tessera-system"), []byte(home)) // other tests have that one
			var served [][]byte
			for _, document := range bytes.Split(text, []byte("---\n")) {
				if !bytes.Contains(document, []byte("\nkind: ServiceMonitor\n")) { // the Prometheus Operator's
					served = append(served, document)
				}
			}
			out, err := shared.kubectl(t.Context(), bytes.Join(served, []byte("---\n")), "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
			if err != nil {
				t.Fatal(err)
			}
			if got, want := strings.Count(out, "serverside-applied"), len(served)-1; got != want {
				t.Errorf("%d objects of %d were accepted:\n%s", got, want, out)
			}
		})
	}
}
