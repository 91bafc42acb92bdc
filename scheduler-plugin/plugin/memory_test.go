package plugin

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// TestAttemptAllocatesLittle limits the memory that an attempt allocates on nodes of 8 H100 in all shapes. In a busy scheduler, the
// garbage collector takes as much time as the plugin.
func TestAttemptAllocatesLittle(t *testing.T) {
	for _, class := range []string{"1g.10gb", "gpu"} {
		// In the bubble, no limit of an attempt is exceeded on a busy machine.
		t.Run(class, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { limitMemory(t, class) }) })
	}
}

func limitMemory(t *testing.T, class string) {
	const attempts, most = 100, 64 << 10
	objects, nodes := hardware(t, 3, class)
	s := newSite(t, objects, nodes, func(ctx context.Context, h fwk.Handle) (fwk.Plugin, error) { return New(ctx, nil, h) })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "pod"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("claim")}}
	s.attempt(t, pod)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range attempts {
		s.attempt(t, pod)
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / attempts; got > most {
		t.Errorf("an attempt allocates %d KiB, want at most %d", got>>10, most>>10)
	} else {
		t.Logf("%d KiB", got>>10)
	}
}
