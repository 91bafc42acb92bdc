package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// seam is called at every place that a scheduler passes: "before Reserve", "after Reserve" for the plugin's
// extension points, "before PUT resourceclaims/status" for a request that is not sent yet, "after PUT
// resourceclaims/status" for one that has an answer, "WATCH resourceclaims" for the API server's events about
// claims. An error takes the place of the answer to a request; in other places it has no effect. It may be
// called concurrently.
type seam func(place string) error

// untouched leaves the scheduler alone.
func untouched(string) error { return nil }

// at returns a seam that acts at the n-th passage of the place, counted from 1.
func at(place string, n int64, act func() error) seam {
	var passed atomic.Int64
	return func(here string) error {
		if here == place && passed.Add(1) == n {
			return act()
		}
		return nil
	}
}

// count counts how often a place is passed.
type count struct {
	place  string
	passed atomic.Int64
}

func (c *count) seam(place string) error {
	if place == c.place {
		c.passed.Add(1)
	}
	return nil
}

// all returns a seam of several, of which the first error counts.
func all(seams ...seam) seam {
	return func(place string) error {
		for _, s := range seams {
			if err := s(place); err != nil {
				return err
			}
		}
		return nil
	}
}

// transport calls the seam for requests.
type transport struct {
	next http.RoundTripper
	seam seam
}

// RoundTrip sends the request, unless the seam returns an error.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	what := requestOf(r)
	if what == "" {
		return t.follow(r)
	}
	if err := t.seam("before " + what); err != nil {
		return refusal(r, err)
	}
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := t.seam("after " + what); err != nil {
		_ = response.Body.Close()
		return refusal(r, err)
	}
	return response, nil
}

// requestOf names a request about objects of a namespace, such as "PUT resourceclaims/status"; it is empty for
// anything else.
func requestOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	i := slices.Index(parts, "namespaces")
	if i < 0 || len(parts) < i+3 {
		return ""
	}
	what := r.Method + " " + parts[i+2]
	if len(parts) > i+4 {
		what += "/" + parts[i+4]
	}
	return what
}

// follow sends the request; the events of a watch of the cluster's objects pass the seam.
func (t transport) follow(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err == nil && r.URL.Query().Has("watch") {
		response.Body = stream{response.Body, func() { _ = t.seam("WATCH " + path.Base(r.URL.Path)) }}
	}
	return response, err
}

// stream is the body of a watch.
type stream struct {
	io.ReadCloser
	pass func()
}

// Read passes the seam with what was read.
func (t stream) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if n > 0 {
		t.pass()
	}
	return n, err
}

// refusal is the answer of an API server that refuses for the reason, or, where the error is none of an
// API server, that of a broken connection.
func refusal(r *http.Request, err error) (*http.Response, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil, err
	}
	answer := status.Status()
	answer.Kind, answer.APIVersion = "Status", "v1"
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: int(answer.Code), Status: http.StatusText(int(answer.Code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r,
	}, nil
}

// watched is our plugin, which calls the seam at its extension points.
type watched struct {
	*plugin.Plugin
	seam seam
}

var (
	_ fwk.PreScorePlugin = (*watched)(nil)
	_ fwk.PostBindPlugin = (*watched)(nil)
)

// registry offers our plugin, watched.
func registry(s seam) frameworkruntime.Registry {
	factory := plugin.NewFactory()
	return frameworkruntime.Registry{plugin.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		made, err := factory.New(ctx, args, h)
		if err != nil {
			return nil, err
		}
		ours, ok := made.(*plugin.Plugin)
		if !ok {
			return nil, fmt.Errorf("watch the plugin: it is a %T", made)
		}
		return &watched{ours, s}, nil
	}}
}

// pass calls the seam at the start of an extension point; the function returned calls it at the end.
func (w *watched) pass(point string) func() {
	_ = w.seam("before " + point)
	return func() { _ = w.seam("after " + point) }
}

func (w *watched) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	defer w.pass("PreFilter")()
	return w.Plugin.PreFilter(ctx, cs, pod, nodes)
}

func (w *watched) Filter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	defer w.pass("Filter")()
	return w.Plugin.Filter(ctx, cs, pod, node)
}

func (w *watched) PostFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	defer w.pass("PostFilter")()
	return w.Plugin.PostFilter(ctx, cs, pod, nodes)
}

func (w *watched) PreScore(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	defer w.pass("PreScore")()
	return w.Plugin.PreScore(ctx, cs, pod, nodes)
}

func (w *watched) Score(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	defer w.pass("Score")()
	return w.Plugin.Score(ctx, cs, pod, node)
}

func (w *watched) Reserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	defer w.pass("Reserve")()
	return w.Plugin.Reserve(ctx, cs, pod, node)
}

func (w *watched) Unreserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) {
	defer w.pass("Unreserve")()
	w.Plugin.Unreserve(ctx, cs, pod, node)
}

func (w *watched) PreBind(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	defer w.pass("PreBind")()
	return w.Plugin.PreBind(ctx, cs, pod, node)
}

// PostBind is where the plugin has nothing to do.
func (w *watched) PostBind(context.Context, fwk.CycleState, *corev1.Pod, string) {
	w.pass("PostBind")()
}
