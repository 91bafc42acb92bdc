package listing

import (
	"context"
	"errors"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/listing/listingtest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// pod is an item of the verb under test.
type pod struct {
	Name  string `json:"name"`
	Phase string `json:"phase"`
}

// lab is a verb that lists the pods of a namespace, and the cluster on which it runs. Without permission to list DeviceClasses, it has a problem.
type lab struct {
	*fake.Clientset
	answer output.Flags
	// loads counts the calls of load.
	loads int
	// pods are the names in the arguments.
	pods []string
}

func newLab(format output.Format) *lab {
	return &lab{Clientset: fake.NewClientset(newPod("a", corev1.PodRunning), newPod("b", corev1.PodPending)), answer: output.Flags{Format: format, Watch: true}}
}

func newPod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name}, Status: corev1.PodStatus{Phase: phase}}
}

func (l *lab) load(ctx context.Context, c *cluster.Cluster) (output.Result, error) {
	l.loads++
	found, err := c.ListPods(ctx, "demo")
	if err != nil {
		return output.Result{}, err
	}
	result := output.Result{Rows: []output.Row{}}
	if _, err := c.ListClasses(ctx); err != nil {
		result.Problems = []string{"No classes: " + err.Error()}
	}
	var cells [][]string
	for _, p := range found {
		cells = append(cells, []string{p.Name, string(p.Status.Phase), p.Name})
		result.Rows = append(result.Rows, output.Row{Name: "pod/" + p.Name, Title: "Pod " + p.Name, Value: pod{p.Name, string(p.Status.Phase)}})
	}
	for _, name := range l.pods {
		if !slices.ContainsFunc(found, func(p corev1.Pod) bool { return p.Name == name }) {
			result.Missing = errors.New("no pod " + name)
		}
	}
	if len(found) == 0 {
		result.Empty = "No pods found."
	}
	result.DrawRows = func(s *output.Screen, shown func(int) bool) {
		s.Table(output.Columns("NAME", "PHASE", "AGAIN"), output.Select(cells, shown))
	}
	return result, nil
}

func (l *lab) run(ctx context.Context, out, errOut io.Writer) error {
	return Verb{Load: l.load, Answer: l.answer, Out: out, ErrOut: errOut}.Run(ctx, &cluster.Cluster{Client: l})
}

// set returns a step that sets the phase of a pod, which is created if it does not exist.
func (l *lab) set(name string, phase corev1.PodPhase) listingtest.Step {
	return listingtest.Step{Name: name + " becomes " + string(phase), Change: func() error { return l.apply(name, phase) }}
}

func (l *lab) apply(name string, phase corev1.PodPhase) error {
	pods := l.CoreV1().Pods("demo")
	_, err := pods.Update(context.Background(), newPod(name, phase), metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = pods.Create(context.Background(), newPod(name, phase), metav1.CreateOptions{})
	}
	return err
}

// remove returns a step that deletes a pod.
func (l *lab) remove(name string) listingtest.Step {
	return listingtest.Step{Name: name + " is deleted", Change: func() error {
		return l.CoreV1().Pods("demo").Delete(context.Background(), name, metav1.DeleteOptions{})
	}}
}

// requests returns the number of requests for pods.
func (l *lab) requests(verb string) int {
	n := 0
	for _, a := range l.Actions() {
		if a.Matches(verb, "pods") {
			n++
		}
	}
	return n
}

// TestFormats watches in all formats: pods that change, are added and are deleted.
func TestFormats(t *testing.T) {
	for file, answer := range map[string]output.Flags{
		"text.txt": {Format: output.Text}, "color.txt": {Format: output.Text, Color: "always"}, "no-headers.txt": {Format: output.Text, NoHeaders: true},
		"name.txt": {Format: output.Name}, "columns.txt": {Format: "custom-columns=POD:.name,PHASE:.phase"}, "json.txt": {Format: output.JSON}, "yaml.txt": {Format: output.YAML},
		"jsonpath.txt": {Format: `jsonpath={.name}{"\n"}`}, "events.txt": {Format: output.JSON, WatchEvents: true},
		"events-columns.txt": {Format: "custom-columns=EVENT:.type,POD:.object.name", WatchEvents: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab("")
			l.answer = answer
			l.answer.Watch = true
			listingtest.Golden(t, filepath.Join("watch", file), l.run,
				l.set("b", corev1.PodRunning), l.set("long-name", corev1.PodPending), l.remove("a"), l.set("c", corev1.PodSucceeded),
				listingtest.Step{Name: "all are deleted", Change: func() error {
					return errors.Join(l.remove("b").Change(), l.remove("c").Change(), l.remove("long-name").Change())
				}}, l.set("d", corev1.PodRunning))
		})
	}
}

// TestEveryChangeIsPrintedOnce also counts the calls of Load and the requests: the list is requested once, changes are coalesced, and changes of fields that
// the cache does not keep cause no output and no call.
func TestEveryChangeIsPrintedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(output.Name)
		outputs, err := listingtest.Watch(t, l.run,
			l.set("b", corev1.PodRunning),
			l.set("b", corev1.PodRunning),
			listingtest.Step{Name: "annotate", Change: func() error {
				annotated := newPod("b", corev1.PodRunning)
				annotated.Annotations, annotated.ResourceVersion = map[string]string{"a": "b"}, "17"
				_, err := l.CoreV1().Pods("demo").Update(t.Context(), annotated, metav1.UpdateOptions{})
				return err
			}},
			listingtest.Step{Name: "many", Change: func() error {
				for i := range 50 {
					if err := l.apply("a", []corev1.PodPhase{corev1.PodPending, corev1.PodFailed}[i%2]); err != nil {
						return err
					}
					time.Sleep(time.Millisecond)
				}
				return nil
			}})
		want := []string{"pod/a\npod/b\n", "pod/b\n", "", "", "pod/a\n"}
		if err != nil || !slices.Equal(outputs, want) {
			t.Errorf("%v, %q, want %q", err, outputs, want)
		}
		if l.loads != 3 || l.requests("list") != 1 || l.requests("watch") != 1 {
			t.Errorf("%d loads, %d lists, %d watches; want 3, 1, 1", l.loads, l.requests("list"), l.requests("watch"))
		}
	})
}

// watches makes the first n watches of pods end when the function that it returns is called, with the event before. Later ones are those of the cluster.
func (l *lab) watches(n int) (end func(*watch.Event)) {
	first := make(chan *watch.FakeWatcher, n)
	l.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		if len(first) == n {
			return false, nil, nil
		}
		w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
		first <- w
		return true, w, nil
	})
	return func(last *watch.Event) {
		w := <-first
		first <- w
		if last != nil {
			w.Action(last.Type, last.Object)
		}
		w.Stop()
	}
}

// TestResume ends the watch as API servers do, while a pod changes.
func TestResume(t *testing.T) {
	gone := apierrors.NewResourceExpired("too old resource version").Status()
	for name, last := range map[string]*watch.Event{"closed": nil, "expired": {Type: watch.Error, Object: &gone}} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(output.Name)
			end := l.watches(1)
			outputs, err := listingtest.Watch(t, l.run,
				l.set("b", corev1.PodRunning), // no event: the first watch is not that of the cluster
				listingtest.Step{Name: "end", Change: func() error { end(last); return nil }, Wait: time.Minute},
				l.set("a", corev1.PodFailed),
				l.remove("b"))
			want := []string{"pod/a\npod/b\n", "", "pod/b\n", "pod/a\n", "pod/b\n"}
			if err != nil || !slices.Equal(outputs, want) {
				t.Errorf("%s: %v, %q, want %q", name, err, outputs, want)
			}
		})
	}
}

// fail makes requests fail while the function returns an error.
func (l *lab) fail(verb, resource string, err func() error) {
	if verb == "watch" {
		l.PrependWatchReactor(resource, func(clienttesting.Action) (bool, watch.Interface, error) { return err() != nil, nil, err() })
		return
	}
	l.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return err() != nil, nil, err() })
}

// TestUnreachable stops the API server during a watch: for a short time, which the watch survives, and for good.
func TestUnreachable(t *testing.T) {
	for name, outage := range map[string]time.Duration{"short": 40 * time.Second, "long": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(output.Name)
			end := l.watches(1)
			var down atomic.Bool
			for _, verb := range []string{"list", "watch"} {
				l.fail(verb, "pods", func() error {
					if down.Load() {
						return &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: syscall.ECONNREFUSED}
					}
					return nil
				})
			}
			start := time.Now()
			var took time.Duration
			run := func(ctx context.Context, out, errOut io.Writer) error {
				defer func() { took = time.Since(start) }()
				return l.run(ctx, out, errOut)
			}
			outputs, err := listingtest.Watch(t, run,
				listingtest.Step{Name: "stop", Change: func() error {
					down.Store(true)
					end(nil)
					return l.apply("b", corev1.PodRunning)
				}, Wait: outage},
				listingtest.Step{Name: "start", Change: func() error { down.Store(false); return nil }, Wait: 30 * time.Second})
			switch name {
			case "short":
				if err != nil || outputs[1] != "" || outputs[2] != "pod/b\n" {
					t.Errorf("%v, %q", err, outputs)
				}
			default:
				for _, want := range []string{"list the pods in demo: no watch for 1m", "connection refused", "The API server is not reachable"} {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%v, want %q in it", err, want)
					}
				}
				if took < time.Minute || took > 2*time.Minute {
					t.Errorf("ended after %s", took)
				}
			}
		})
	}
}

// TestForbidden covers missing permissions: without pods the verb fails as it does without a watch, without classes it has a problem until they are permitted.
func TestForbidden(t *testing.T) {
	for verb, resource := range map[string]string{"list": "pods", "watch": "pods"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(output.Text)
			l.fail(verb, resource, func() error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no "+verb))
			})
			outputs, err := listingtest.Watch(t, l.run)
			if err == nil || !strings.HasPrefix(err.Error(), "list the pods in demo: pods is forbidden: no "+verb) || !strings.Contains(err.Error(), "auth can-i") || outputs[0] != "" {
				t.Errorf("%s: %v, %q", verb, err, outputs)
			}
		})
	}
	for _, format := range []output.Format{output.Text, output.JSON} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(format)
			var permitted atomic.Bool
			l.fail("list", "deviceclasses", func() error {
				if permitted.Load() {
					return nil
				}
				return apierrors.NewForbidden(schema.GroupResource{Resource: "deviceclasses"}, "", errors.New("no list"))
			})
			outputs, err := listingtest.Watch(t, l.run, l.set("b", corev1.PodRunning), listingtest.Step{Name: "permit", Change: func() error { permitted.Store(true); return nil }, Wait: time.Minute})
			if err != nil || strings.Count(strings.Join(outputs, ""), "No classes: list the DeviceClasses: deviceclasses is forbidden: no list") != 1 || outputs[2] != "" {
				t.Errorf("%s: %v, %q", format, err, outputs)
			}
			if !strings.Contains(outputs[0], "No classes") || strings.Contains(outputs[1], "No classes") || !strings.Contains(outputs[1], "b") {
				t.Errorf("%s: %q", format, outputs)
			}
		})
	}
}

// TestInterrupt ends the watch during its first list.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(output.Text)
		release := make(chan struct{})
		l.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			<-release
			return true, nil, context.Canceled
		})
		if outputs, err := listingtest.Watch(t, l.run); err != nil || outputs[0] != "" {
			t.Errorf("%v, %q", err, outputs)
		}
		close(release)
	})
}

// TestArguments watches a named pod: a name without a pod is an error at first, and no error after the pod is deleted.
func TestArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(output.Name)
		l.pods = []string{"z"}
		if _, err := listingtest.Watch(t, l.run); err == nil || err.Error() != "no pod z" {
			t.Errorf("unknown name: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLab(output.Name)
		l.pods = []string{"a"}
		if outputs, err := listingtest.Watch(t, l.run, l.remove("a"), l.set("a", corev1.PodRunning)); err != nil || outputs[2] != "pod/a\n" {
			t.Errorf("%v, %q", err, outputs)
		}
	})
}
