package agent

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// TestScrapesNeedTheRight: the agent, with its permissions as shipped, serves metrics over TLS to accounts with the ClusterRole as shipped. The command
// metrics needs none.
func TestScrapesNeedTheRight(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	n.identify()
	objects, err := cluster.ReadManifest("rbac.yaml")
	n.must(err)
	for _, object := range objects {
		if object.GetName() != "tessera-metrics-reader" {
			continue
		}
		var role rbacv1.ClusterRole
		n.must(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role))
		if _, err := shared.client.RbacV1().ClusterRoles().Create(t.Context(), &role, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			n.must(err)
		}
	}
	// A port that is held on one loopback address is not assigned on another one.
	port, err := harness.HoldPort()
	n.must(err)
	t.Cleanup(port.Release)
	address := fmt.Sprintf("127.0.0.2:%d", port.Number)
	n.args = append(n.args, "--metrics-address="+address)
	a, _ := n.run()
	n.must(harness.CheckScrapes(t.Context(), shared.client, address, n.name+"-metrics"))
	for _, path := range []string{"/readyz", "/livez"} { // as kubelet's probes: without a token
		n.must(harness.Poll(t.Context(), func(ctx context.Context) error {
			_, err := harness.Get(ctx, address, path, "")
			return err
		}))
	}
	text, err := exec.Command(shared.agent, "metrics", "--socket="+a.socket()).Output()
	n.must(err)
	if !strings.Contains(string(text), "tessera_gpus 2\n") {
		t.Errorf("the command metrics prints:\n%s", text)
	}
}
