package plugin

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
)

// clientHandle is a handle that has a client only.
type clientHandle struct {
	fwk.Handle
	client kubernetes.Interface
}

func (h clientHandle) ClientSet() kubernetes.Interface { return h.client }

// TestReadingAfterAFailedWriteEnds lets reading the claims of a pod fail for longer than the limit.
func TestReadingAfterAFailedWriteEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, refused, reads := fake.NewClientset(), errors.New("no answer"), 0
		client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			reads++
			return true, nil, refused
		})
		args, err := config.Load(nil)
		if err != nil {
			t.Fatal(err)
		}
		p := &Plugin{handle: clientHandle{client: client}, args: args, shared: &sharedState{life: t.Context(), index: index.New(index.Config{})}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"}}
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("claim")}}
		ended := make(chan error, 1)
		start := time.Now()
		go func() { ended <- p.assumeWrittenAllocations(t.Context(), pod) }()
		select {
		case err := <-ended:
			if !errors.Is(err, refused) || !strings.Contains(err.Error(), "10m0s") {
				t.Errorf("the error is %v, want one with its cause and the limit", err)
			}
			if took := time.Since(start); took != 10*time.Minute || reads < 500 {
				t.Errorf("it ends after %s and %d reads, want 10m and 600", took, reads)
			}
		case <-time.After(time.Hour):
			t.Fatalf("it has not ended after an hour and %d reads", reads)
		}
	})
}
