package validation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/validation"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// A validation fails with its first failed part, runs while one runs, and has passed when all have.
func TestCombine(t *testing.T) {
	first, later := time.Unix(1, 0), time.Unix(2, 0)
	passed := phase.Pod{State: phase.PodSucceeded, Since: later}
	noted := phase.Pod{State: phase.PodSucceeded, Since: later, Message: "n"}
	failed := phase.Pod{State: phase.PodFailed, Since: first, Reason: "Error", Message: "m"}
	waits := phase.Pod{State: phase.PodPending, Since: first, Reason: "Unschedulable", Message: "w"}
	for name, test := range map[string]struct {
		parts []phase.Pod
		want  phase.Validation
	}{
		"no part":             {nil, phase.Validation{}},
		"passed":              {[]phase.Pod{passed}, phase.Validation{State: phase.ValidationPassed, Since: later, Leftover: true}},
		"passed with notes":   {[]phase.Pod{noted, passed}, phase.Validation{State: phase.ValidationPassed, Since: later, Leftover: true, Message: "n"}},
		"one runs":            {[]phase.Pod{passed, waits}, phase.Validation{State: phase.ValidationRunning, Since: first, Reason: "Unschedulable", Message: "w"}},
		"one fails":           {[]phase.Pod{waits, failed}, phase.Validation{State: phase.ValidationFailed, Since: first, Reason: "Error", Message: "m", Leftover: true}},
		"the first to wait":   {[]phase.Pod{waits, {State: phase.PodStarting, Since: later, Reason: "r"}}, phase.Validation{State: phase.ValidationRunning, Since: first, Reason: "Unschedulable", Message: "w"}},
		"a failed one before": {[]phase.Pod{failed, passed}, phase.Validation{State: phase.ValidationFailed, Since: first, Reason: "Error", Message: "m", Leftover: true}},
	} {
		if got := validation.Combine(phase.Validation{}, test.parts); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

// Objects that do not exist are nil; any other error is returned.
func TestReadObjects(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: action.ValidationName("n", action.PartGPUs), Annotations: map[string]string{action.AnnotationBarrier: "b"}}
	claim, pod := &resourceapi.ResourceClaim{ObjectMeta: meta}, &corev1.Pod{ObjectMeta: meta}
	for name, test := range map[string]struct {
		objects      []client.Object
		exist, waits bool
	}{
		"none":     {nil, false, false},
		"a claim":  {[]client.Object{claim}, true, true},
		"a pod":    {[]client.Object{pod}, true, false},
		"the pair": {[]client.Object{claim, pod}, true, false},
	} {
		cluster := action.Cluster{Client: controllertest.NewPlainClient(t, test.objects...), Namespace: controllertest.Namespace}
		o, err := validation.ReadObjects(t.Context(), cluster, "n", action.PartGPUs)
		if err != nil || o.Exist() != test.exist || o.AwaitsPod("b") != test.waits || o.AwaitsPod("other") || o.Allocated() {
			t.Errorf("%s: %+v, error %v", name, o, err)
		}
	}
	refused := errors.New("refused")
	failing := interceptor.NewClient(controllertest.NewPlainClient(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return refused
		},
	})
	if _, err := validation.ReadObjects(t.Context(), action.Cluster{Client: failing}, "n", action.PartGPUs); !errors.Is(err, refused) {
		t.Errorf("got error %v", err)
	}
}

// The node agent's image validates, unless the policy names another one; the pods go to the scheduler that places claims for GPUs.
func TestDescribe(t *testing.T) {
	var p controllertest.Policies
	if v := validation.Describe(p.Catalog(), nil, "b", "release"); v.Agent.Image != "release" || v.Component.Image != "" || v.Scheduler != render.OperandScheduler || v.Barrier != "b" {
		t.Errorf("by default: %+v", v)
	}
	p.Spec.Validator.Image, p.Spec.NodeAgent.Image = "own", "agent"
	p.Spec.Scheduler.Enabled = new(false)
	if v := validation.Describe(p.Catalog(), nil, "b", "release"); v.Component.Image != "own" || v.Agent.Image != "agent" || v.Scheduler != corev1.DefaultSchedulerName {
		t.Errorf("configured: %+v", v)
	}
}
