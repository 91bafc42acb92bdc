package requeue

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

func TestRequeuerActivatesPodsThatMissedAnEvent(t *testing.T) {
	type event struct {
		version string
		effect  index.Effect
	}
	tests := map[string]struct {
		// received are the informer's versions when the attempts of pods 0, 1 and so on start.
		received []string
		events   []event
		want     []string
	}{
		"event received before the attempt":        {[]string{"5"}, []event{{"5", index.MayFreeDevices}}, []string{"0"}},
		"event received after the attempt started": {[]string{"5"}, []event{{"6", index.MayFreeDevices}}, nil},
		"event that frees nothing":                 {[]string{"5"}, []event{{"5", index.FreesNothing}}, nil},
		"event after one that frees nothing":       {[]string{"5"}, []event{{"4", index.FreesNothing}, {"5", index.MayFreeDevices}}, []string{"0"}},
		"two events activate once":                 {[]string{"5"}, []event{{"4", index.MayFreeDevices}, {"5", index.MayFreeDevices}}, []string{"0"}},
		"only attempts that started later":         {[]string{"3", "5", "6"}, []event{{"5", index.MayFreeDevices}}, []string{"1", "2"}},
		"event without a version":                  {[]string{"3", "5"}, []event{{"", index.MayFreeDevices}}, []string{"0", "1"}},
		"informer without a version":               {[]string{""}, []event{{"9", index.MayFreeDevices}}, []string{"0"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var received string
			var got []string
			r := NewRequeuer(func() string { return received }, func(pods []*corev1.Pod) {
				for _, pod := range pods {
					got = append(got, pod.Name)
				}
			})
			for i, version := range test.received {
				received = version
				r.StartAttempt(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(rune('0' + i))}})
			}
			for _, e := range test.events {
				r.EventProcessed(e.version, e.effect)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("activated pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHintsKeepTheStronger(t *testing.T) {
	h := NewHints()
	h.Set("a", InTreeOnly)
	h.Set("a", AllNodes)
	h.Set("b", AllNodes)
	if got := h.Take("a"); got != InTreeOnly {
		t.Errorf("hint of a: %d, want the stronger one, %d", got, InTreeOnly)
	}
	if got := h.Take("a"); got != 0 {
		t.Errorf("hint of a after it was taken: %d, want none", got)
	}
	if got := h.Take("b"); got != AllNodes {
		t.Errorf("hint of b: %d, want %d", got, AllNodes)
	}
}
