package trigger

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Each predicate passes the updates that its reconcilers depend on, and no others.
func TestPredicates(t *testing.T) {
	config := func(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}, Data: map[string]string{"k": "v"}}
		change(m)
		return m
	}
	policy := func(change func(*v1alpha1.ClusterPolicy)) *v1alpha1.ClusterPolicy {
		p := &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default", Generation: 1}}
		change(p)
		return p
	}
	secret := func(value string) *corev1.Secret {
		return &corev1.Secret{Data: map[string][]byte{"k": []byte(value)}}
	}
	same, samePolicy := config(func(*corev1.ConfigMap) {}), policy(func(*v1alpha1.ClusterPolicy) {})
	tests := map[string]struct {
		predicate predicate.Predicate
		old, now  client.Object
		want      bool
	}{
		"changed: only the version":      {Changed(), same, config(func(m *corev1.ConfigMap) { m.ResourceVersion = "2"; m.ManagedFields = []metav1.ManagedFieldsEntry{{}} }), false},
		"changed: a label":               {Changed(), same, config(func(m *corev1.ConfigMap) { m.Labels = map[string]string{"a": "b"} }), true},
		"decided: the status":            {Decided(), samePolicy, policy(func(p *v1alpha1.ClusterPolicy) { p.Status.ObservedGeneration = 1 }), false},
		"decided: the spec":              {Decided(), samePolicy, policy(func(p *v1alpha1.ClusterPolicy) { p.Generation = 2 }), true},
		"decided: an annotation":         {Decided(), samePolicy, policy(func(p *v1alpha1.ClusterPolicy) { p.Annotations = map[string]string{"a": "b"} }), true},
		"contents: the version":          {ContentsChanged(), same, config(func(m *corev1.ConfigMap) { m.ResourceVersion = "2" }), false},
		"contents: the data":             {ContentsChanged(), same, config(func(m *corev1.ConfigMap) { m.Data["k"] = "w" }), true},
		"contents: binary data":          {ContentsChanged(), same, config(func(m *corev1.ConfigMap) { m.BinaryData = map[string][]byte{"b": {1}} }), true},
		"contents: a label":              {ContentsChanged(), same, config(func(m *corev1.ConfigMap) { m.Labels = map[string]string{"a": "b"} }), true},
		"contents: a Secret's value":     {ContentsChanged(), secret("a"), secret("b"), true},
		"contents: a Secret as it was":   {ContentsChanged(), secret("a"), secret("a"), false},
		"contents: an object of another": {ContentsChanged(), samePolicy, samePolicy, true},
	}
	for name, test := range tests {
		if got := test.predicate.Update(event.UpdateEvent{ObjectOld: test.old, ObjectNew: test.now}); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
		if !test.predicate.Create(event.CreateEvent{Object: test.now}) || !test.predicate.Delete(event.DeleteEvent{Object: test.now}) {
			t.Errorf("%s: creation or deletion does not pass", name)
		}
	}
}

// Of two times the shorter one counts; zero is never.
func TestSooner(t *testing.T) {
	for _, test := range [][3]time.Duration{{0, 0, 0}, {0, 1, 1}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}} {
		if got := Sooner(test[0], test[1]); got != test[2] {
			t.Errorf("of %d and %d: got %d", test[0], test[1], got)
		}
	}
	if got := Request("n"); got.Name != "n" || got.Namespace != "" {
		t.Errorf("the request is %v", got)
	}
}
