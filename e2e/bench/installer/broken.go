package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// breakPeriod is the interval at which the broken node's driver starts and fails, as with kubelet's first back-off.
const breakPeriod = 5 * time.Second

// breakNode makes the driver's pod on the node not ready, with its container restarting, until it is stopped.
func (s *stage) breakNode(ctx context.Context, node string) (stop func(), err error) {
	pods, err := s.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=tessera-driver", FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("break %s: %d driver pods there", node, len(pods.Items))
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for restarts := int32(1); sleep(ctx, breakPeriod) == nil; restarts++ {
			s.players.note(s.crash(ctx, pods.Items[0].Name, restarts))
		}
	}()
	return func() { cancel(); <-done }, nil
}

// crash writes one more end of the containers into the pod's status.
func (s *stage) crash(ctx context.Context, name string, restarts int32) error {
	pod, err := s.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			c.Status = corev1.ConditionFalse
		}
	}
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		c.Ready, c.RestartCount = false, restarts
		c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off restarting failed container"}}
		c.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}
	}
	_, err = s.Client.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// percentiles are upper bounds in seconds, from a histogram of this number of reconciles.
type percentiles struct {
	median, p99 float64
	count       int
}

// reconciles reads the durations of a controller's reconciles.
func (s *stage) reconciles(ctx context.Context, controller string) (percentiles, error) {
	token, err := harness.ScrapeToken(ctx, s.Client, "bench-metrics", "tessera-metrics-reader")
	if err != nil {
		return percentiles{}, err
	}
	text, err := harness.Scrape(ctx, metricsAddress, token)
	if err != nil {
		return percentiles{}, fmt.Errorf("read the installer's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return percentiles{}, fmt.Errorf("read the installer's metrics: %w", err)
	}
	for _, metric := range families["controller_runtime_reconcile_time_seconds"].GetMetric() {
		mine := slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "controller" && l.GetValue() == controller })
		if mine {
			return quantiles(metric.GetHistogram()), nil
		}
	}
	return percentiles{}, fmt.Errorf("the installer's metrics contain no reconciles of %s", controller)
}

// quantiles are the bounds of the buckets in which they lie.
func quantiles(h *dto.Histogram) (p percentiles) {
	p.count = int(h.GetSampleCount()) //nolint:gosec // reconciles of minutes
	for _, bucket := range h.GetBucket() {
		share := float64(bucket.GetCumulativeCount()) / float64(h.GetSampleCount())
		if p.median == 0 && share >= .5 {
			p.median = bucket.GetUpperBound()
		}
		if p.p99 == 0 && share >= .99 {
			p.p99 = bucket.GetUpperBound()
		}
	}
	return p
}
