package plugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBehind(t *testing.T) {
	type event struct {
		version string
		may     freeing
	}
	tests := map[string]struct {
		// received are the versions at the beginning of the attempts of pods 0, 1 and so on.
		received []string
		events   []event
		want     []string
	}{
		"an event that the scheduler had before": {[]string{"5"}, []event{{"5", frees}}, []string{"0"}},
		"an event that the scheduler has later":  {[]string{"5"}, []event{{"6", frees}}, nil},
		"an event that frees nothing":            {[]string{"5"}, []event{{"5", keeps}}, nil},
		"one after an event that frees nothing":  {[]string{"5"}, []event{{"4", keeps}, {"5", frees}}, []string{"0"}},
		"once":                                   {[]string{"5"}, []event{{"4", frees}, {"5", frees}}, []string{"0"}},
		"only those that began later":            {[]string{"3", "5", "6"}, []event{{"5", frees}}, []string{"1", "2"}},
		"an event without a version":             {[]string{"3", "5"}, []event{{"", frees}}, []string{"0", "1"}},
		"an informer without a version":          {[]string{""}, []event{{"9", frees}}, []string{"0"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var received string
			var got []string
			b := &behind{received: func() string { return received }, again: func(pods []*corev1.Pod) {
				for _, pod := range pods {
					got = append(got, pod.Name)
				}
			}}
			for i, version := range test.received {
				received = version
				b.begin(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(rune('0' + i))}})
			}
			for _, e := range test.events {
				b.heard(e.version, e.may)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("pods tried again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMarks(t *testing.T) {
	m := newMarks()
	m.set("a", inTree)
	m.set("a", wide)
	m.set("b", wide)
	if got := m.take("a"); got != inTree {
		t.Errorf("mark of a: %d, want the stronger one, %d", got, inTree)
	}
	if got := m.take("a"); got != 0 {
		t.Errorf("mark of a the second time: %d, want none", got)
	}
	if got := m.take("b"); got != wide {
		t.Errorf("mark of b: %d, want %d", got, wide)
	}
}
