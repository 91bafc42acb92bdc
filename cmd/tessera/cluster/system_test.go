package cluster

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func labeled(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "tessera"}}
}

func TestSystemNamespace(t *testing.T) {
	installer := &appsv1.Deployment{ObjectMeta: labeled("gpus", "tessera-installer")}
	tests := map[string]struct {
		objects  []runtime.Object
		selected string
		want     string
		err      string
	}{
		"none":                 {want: "tessera-system"},
		"selected":             {objects: []runtime.Object{installer}, selected: "mine", want: "mine"},
		"labeled namespace":    {objects: []runtime.Object{&corev1.Namespace{ObjectMeta: labeled("", "kube-gpus")}, installer}, want: "kube-gpus"},
		"labeled workload":     {objects: []runtime.Object{installer}, want: "gpus"},
		"labeled daemon set":   {objects: []runtime.Object{&appsv1.DaemonSet{ObjectMeta: labeled("gpus", "tessera-node")}}, want: "gpus"},
		"tenant with the name": {objects: []runtime.Object{&appsv1.Deployment{ObjectMeta: labeled("tenant", "fake")}, &appsv1.Deployment{ObjectMeta: labeled("tessera-system", "tessera-installer")}}, want: "tessera-system"},
		"ambiguous":            {objects: []runtime.Object{installer, &appsv1.Deployment{ObjectMeta: labeled("tenant", "fake")}}, err: "select one with --system-namespace"},
	}
	for name, test := range tests {
		c := &Cluster{Client: fake.NewClientset(test.objects...), System: test.selected}
		got, err := c.SystemNamespace(t.Context())
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, test.want, test.err)
		}
	}
	client := fake.NewClientset(installer)
	client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("no"))
	})
	if got, err := (&Cluster{Client: client}).SystemNamespace(t.Context()); got != "tessera-system" || err != nil {
		t.Errorf("without permissions: %q, %v", got, err)
	}
}
