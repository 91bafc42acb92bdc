package policy

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
)

// TestRuntimeClassHandler: the RuntimeClass names a handler that the runtimes of all GPU nodes have. The lists are those of kubelet (KEP-3857): with CRI-O
// that has only crun, with its own handlers, and with containerd 1.7, which reports none.
func TestRuntimeClassHandler(t *testing.T) {
	for name, test := range map[string]struct {
		handlers [][]string
		want     string
		fault    bool
	}{
		"containerd 1.7":          {[][]string{nil}, "runc", false},
		"containerd 2":            {[][]string{{"", "runc"}}, "runc", false},
		"CRI-O with both":         {[][]string{{"", "crun", "runc"}}, "runc", false},
		"CRI-O with crun alone":   {[][]string{{"", "crun"}}, "crun", false},
		"crun, and none reported": {[][]string{{"", "crun"}, nil}, "crun", false},
		"one node without runc":   {[][]string{{"", "crun", "runc"}, {"", "crun"}}, "crun", false},
		"no common handler":       {[][]string{{"", "runc"}, {"", "crun"}}, "runc", true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := freshCluster()
			objects[0].(*v1alpha1.ClusterPolicy).Spec.Toolkit.RuntimeClass = "nvidia"
			nodes, gpunodes := objects[2].(*corev1.Node), objects[3].(*v1alpha1.GPUNode)
			for i, handlers := range test.handlers {
				node, gpunode := nodes, gpunodes
				if i > 0 {
					node, gpunode = controllertest.ServingNode("m"), gpunodes.DeepCopy()
					gpunode.Name = "m"
					objects = append(objects, node, gpunode)
				}
				for _, handler := range handlers {
					node.Status.RuntimeHandlers = append(node.Status.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: handler})
				}
			}
			c := controllertest.NewClient(t, objects...)
			if _, err := newReconciler(t, c).Reconcile(t.Context(), ctrl.Request{}); err != nil {
				t.Fatal(err)
			}
			class := &nodev1.RuntimeClass{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "nvidia"}, class); err != nil || class.Handler != test.want {
				t.Errorf("handler %q, error %v, want %q", class.Handler, err, test.want)
			}
			got := degraded(readPolicy(t, c).Status.Conditions)
			if test.fault != strings.HasPrefix(got, "RuntimeHandlerMissing: node m has ") || test.fault && !strings.Contains(got, "remove toolkit.runtimeClass") {
				t.Errorf("the policy is Degraded because of %q", got)
			}
		})
	}
}
