package quota

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/listing/listingtest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
)

// scene returns the everyday cluster with limits of its namespace and of one without claims.
func scene(t *testing.T) *clustertest.Scene {
	t.Helper()
	s := clustertest.Everyday(t)
	const whole, shares = "gpu.tessera.dev.deviceclass.resource.k8s.io/devices", "timeshare.tessera.dev.deviceclass.resource.k8s.io/devices"
	s.Add(
		&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "gpus"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
				whole: resource.MustParse("4"), shares: resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("10"),
			}},
			Status: corev1.ResourceQuotaStatus{Used: corev1.ResourceList{whole: resource.MustParse("3"), shares: resource.MustParse("3")}},
		},
		&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "small-team", Name: "one"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("1"), "count/resourceclaims.resource.k8s.io": resource.MustParse("2")}},
		},
		&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "cpu"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		})
	return s
}

func TestOutput(t *testing.T) {
	for file, test := range map[string]struct {
		namespaces []string
		format     output.Format
	}{
		"all.txt": {nil, output.Text}, "wide.txt": {nil, output.Wide}, "all.json": {nil, output.JSON}, "one.txt": {[]string{"demo", "demo"}, output.Text}, "name.txt": {nil, output.Name},
	} {
		var out, errOut bytes.Buffer
		if err := run(t.Context(), scene(t).Cluster(), request{test.namespaces, output.Flags{Format: test.format}, &out, &errOut}); err != nil || errOut.Len() > 0 {
			t.Fatalf("%s: %v %s", file, err, errOut.String())
		}
		outputtest.Golden(t, file, out.String())
	}
	var out, errOut bytes.Buffer
	err := run(t.Context(), clustertest.New(t).Cluster(), request{nil, output.Flags{Format: output.Text}, &out, &errOut})
	if err != nil || out.Len() > 0 || errOut.String() != "No namespace uses GPUs or has limits on them.\n" {
		t.Errorf("nothing: %v, %q, %q", err, out.String(), errOut.String())
	}
}

// TestWatch watches two namespaces: a claim is deleted, a limit is removed.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := scene(t).Cluster()
		run := func(ctx context.Context, out, errOut io.Writer) error {
			return run(ctx, c, request{[]string{"small-team", "demo"}, output.Flags{Format: output.Text, Watch: true}, out, errOut})
		}
		listingtest.Golden(t, "watch.txt", run,
			listingtest.Step{Name: "train is deleted", Change: func() error {
				return c.Client.ResourceV1().ResourceClaims("demo").Delete(t.Context(), "train", metav1.DeleteOptions{})
			}},
			listingtest.Step{Name: "the limits of small-team are deleted", Change: func() error {
				return c.Client.CoreV1().ResourceQuotas("small-team").Delete(t.Context(), "one", metav1.DeleteOptions{})
			}},
			listingtest.Step{Name: "a pod starts", Change: func() error {
				_, err := c.Client.CoreV1().Pods("demo").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
				return err
			}})
	})
}
