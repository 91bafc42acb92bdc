package expect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// observe reads from the caches what the subject is now. The pods are those of the outcome, in its order.
func (w *Watcher) observe(s Subject) (Outcome, []*corev1.Pod, error) {
	switch s.Kind {
	case "Job":
		return w.observeJob(s)
	case "Deployment":
		return w.observeDeployment(s)
	}
	pod, err := w.factory.Core().V1().Pods().Lister().Pods(s.Namespace).Get(s.Name)
	if errors.IsNotFound(err) {
		return missing(s), nil, nil
	}
	if err != nil {
		return Outcome{}, nil, err
	}
	return w.outcome(s, podPhase(pod), pod)
}

func (w *Watcher) observeJob(s Subject) (Outcome, []*corev1.Pod, error) {
	job, err := w.factory.Batch().V1().Jobs().Lister().Jobs(s.Namespace).Get(s.Name)
	if errors.IsNotFound(err) {
		return missing(s), nil, nil
	}
	if err != nil {
		return Outcome{}, nil, err
	}
	pods, err := w.pods(s.Namespace, labels.SelectorFromSet(labels.Set{batchv1.JobNameLabel: job.Name}))
	if err != nil {
		return Outcome{}, nil, err
	}
	phase := jobPhase(job, pods)
	succeeded := 0
	for _, pod := range pods {
		if podPhase(pod) == Succeeded {
			succeeded++
		}
	}
	if phase == Succeeded && succeeded < int(job.Status.Succeeded) {
		phase = Running // the caches know of its end before that of its pods
	}
	return w.outcome(s, phase, pods...)
}

// observeDeployment leaves out the pods that are on their way out.
func (w *Watcher) observeDeployment(s Subject) (Outcome, []*corev1.Pod, error) {
	deployment, err := w.factory.Apps().V1().Deployments().Lister().Deployments(s.Namespace).Get(s.Name)
	if errors.IsNotFound(err) {
		return missing(s), nil, nil
	}
	if err != nil {
		return Outcome{}, nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return Outcome{}, nil, err
	}
	pods, err := w.pods(s.Namespace, selector)
	if err != nil {
		return Outcome{}, nil, err
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	phase := deploymentPhase(deployment)
	if phase == Running && len(pods) < int(deployment.Status.Replicas) {
		phase = Pending // as the caches know the pods
	}
	return w.outcome(s, phase, pods...)
}

// missing is the outcome of a subject that is not there.
func missing(s Subject) Outcome {
	return Outcome{Subject: s, Phase: Pending, Explanation: "it does not exist"}
}

// pods returns the selected pods by name.
func (w *Watcher) pods(namespace string, selector labels.Selector) ([]*corev1.Pod, error) {
	pods, err := w.factory.Core().V1().Pods().Lister().Pods(namespace).List(selector)
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) }), nil
}

func (w *Watcher) outcome(s Subject, phase Phase, pods ...*corev1.Pod) (Outcome, []*corev1.Pod, error) {
	o := Outcome{Subject: s, Phase: phase}
	published, err := w.factory.Resource().V1().ResourceSlices().Lister().List(labels.Everything())
	if err != nil {
		return Outcome{}, nil, err
	}
	events, err := w.factory.Core().V1().Events().Lister().Events(s.Namespace).List(labels.Everything())
	if err != nil {
		return Outcome{}, nil, err
	}
	for _, pod := range pods {
		claims := w.claimsOf(pod)
		given := grants(pod, claims, published)
		observed := Pod{Name: pod.Name, Node: pod.Spec.NodeName}
		observed.Began, observed.Ended = times(pod)
		for _, c := range claims {
			if c.claim != nil {
				observed.Requests = append(observed.Requests, describeRequests(c.claim)...)
			}
		}
		for _, container := range pod.Spec.Containers {
			observed.Containers = append(observed.Containers, Container{Name: container.Name, Grants: given[container.Name]})
		}
		o.Pods = append(o.Pods, observed)
		if o.Explanation == "" {
			o.Explanation = explain(pod, events)
		}
	}
	return o, pods, nil
}

// settled reports whether waiting longer cannot change what is to be said about the outcome.
func (o Outcome) settled() bool {
	switch o.Phase {
	case Succeeded:
		return o.Subject.Expectation.Phase != Succeeded || !o.unreported()
	case Failed, Refused, Accepted:
		return true
	case Running:
		return o.Subject.Expectation.Phase != Succeeded && !o.unreported()
	case Pending:
		return o.Subject.Expectation.Phase == Pending && strings.Contains(o.Explanation, o.Subject.Expectation.Reason)
	}
	return false
}

// unreported reports whether the agent is still to write something that is expected into the status of a claim: it does so when the container runs already.
func (o Outcome) unreported() bool {
	for _, pod := range o.Pods {
		for _, c := range pod.Containers {
			silent := func(g Grant) bool { return g.TimeSlice == "" }
			if o.Subject.Expectation.of(c.Name).TimeSlice != "" && slices.ContainsFunc(c.Grants, silent) {
				return true
			}
		}
	}
	return false
}

// explain returns the API server's word on why the pod is not further: the scheduler's message, what
// a container waits for or died of, and the warnings about the pod.
func explain(pod *corev1.Pod, events []*corev1.Event) string {
	var reasons []string
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			reasons = append(reasons, condition.Message)
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil && waiting.Message != "" {
			reasons = append(reasons, fmt.Sprintf("container %s: %s: %s", status.Name, waiting.Reason, waiting.Message))
		}
		if ended := status.State.Terminated; ended != nil && ended.ExitCode != 0 {
			reasons = append(reasons, fmt.Sprintf("container %s: %s with exit code %d %s", status.Name, ended.Reason, ended.ExitCode, ended.Message))
		}
	}
	if pod.Status.Phase != corev1.PodSucceeded {
		reasons = append(reasons, warnings(pod, events, reasons)...)
	}
	return strings.TrimSpace(strings.Join(reasons, "; "))
}

// warnings returns the latest warning about the pod of each kind, without those that are known.
func warnings(pod *corev1.Pod, events []*corev1.Event, known []string) []string {
	latest := map[string]*corev1.Event{}
	for _, event := range events {
		if event.InvolvedObject.UID != pod.UID || event.Type != corev1.EventTypeWarning {
			continue
		}
		if other := latest[event.Reason]; other == nil || eventTime(other).Before(eventTime(event)) {
			latest[event.Reason] = event
		}
	}
	var texts []string
	for _, reason := range slices.Sorted(maps.Keys(latest)) {
		if message := latest[reason].Message; !slices.Contains(known, message) {
			texts = append(texts, reason+": "+message)
		}
	}
	return texts
}

func eventTime(e *corev1.Event) *metav1.Time {
	if e.LastTimestamp.IsZero() {
		at := metav1.NewTime(e.EventTime.Time)
		return &at
	}
	return &e.LastTimestamp
}
