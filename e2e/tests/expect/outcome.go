package expect

import (
	"fmt"
	"strings"
	"time"
)

// Outcome is what came of a subject: what the API server and the containers' logs say.
type Outcome struct {
	Subject Subject
	// Phase is what the subject has come to.
	Phase Phase
	// Explanation is the API server's word on why the subject is not further, or failed.
	Explanation string
	// Pods are the subject's pods by name.
	Pods []Pod
}

// Pod is one pod of an Outcome.
type Pod struct {
	Name, Node string
	// Began and Ended are when its first container began and its last one ended; zero when that is still
	// to come.
	Began, Ended time.Time
	// Requests are the requests of the pod's claims as text.
	Requests   []string
	Containers []Container
}

// Container is one container of a Pod.
type Container struct {
	Name, Log string
	// Grants are the devices that the API server says the container was given.
	Grants []Grant
}

// Seen returns what the container says it can use, and false when it did not run the probe.
func (c Container) Seen() ([]Seen, bool) {
	report, ok := ParseReport(c.Log)
	return report.Devices(), ok
}

// Grants returns every device given to the pod, and every share of one, once.
func (p Pod) Grants() []Grant {
	var grants []Grant
	type share struct{ device, id string }
	known := map[share]bool{}
	for _, c := range p.Containers {
		for _, g := range c.Grants {
			if s := (share{g.String(), g.ShareID}); !known[s] {
				known[s] = true
				grants = append(grants, g)
			}
		}
	}
	return grants
}

// overlaps reports whether both pods ran at one time. Times have the resolution of the API, a second.
func (p Pod) overlaps(other Pod) bool {
	return !p.Began.IsZero() && !other.Began.IsZero() &&
		(other.Ended.IsZero() || !p.Began.After(other.Ended)) && (p.Ended.IsZero() || !other.Began.After(p.Ended))
}

// logs returns the ends of all logs, for a complaint.
func (o Outcome) logs() string {
	var text strings.Builder
	for _, pod := range o.Pods {
		for _, container := range pod.Containers {
			if container.Log != "" {
				fmt.Fprintf(&text, "(%s, container %s, says %q)", pod.Name, container.Name, lastLines(container.Log))
			}
		}
	}
	return text.String()
}
