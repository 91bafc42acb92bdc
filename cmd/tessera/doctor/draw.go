package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// The columns of a finding: the severity, and what stands below it.
const (
	margin = "  "
	indent = 12
	label  = indent + 6
)

// mostRemembered is how many remediations of a node are told.
const mostRemembered = 3

// Draw writes the report for people: the summary, then every node with something to tell.
func Draw(s *output.Screen, report Report) {
	style := output.Green
	switch {
	case report.Bad():
		style = output.Red
	case strings.Contains(report.Summary, "not well"):
		style = output.Yellow
	}
	s.Wrap(output.Part{}, 0, output.Part{Style: style, Text: report.Summary})
	if len(report.Cluster) > 0 {
		s.Line()
		s.Line(output.Part{Style: output.Bold, Text: "the cluster"})
		drawFindings(s, report.Cluster, report.Time.Time)
	}
	for _, n := range report.Nodes {
		if len(n.Findings) == 0 && len(n.History) == 0 {
			continue
		}
		s.Line()
		s.Line(output.Part{Style: output.Bold, Text: n.Name}, output.Part{Text: "   " + count(n.GPUs, "GPU")}, output.Part{Style: styleOf(n.Severity), Text: "   " + wellOr(n.Severity)})
		drawFindings(s, n.Findings, report.Time.Time)
		drawHistory(s, n.History)
	}
	if len(report.Problems) > 0 {
		s.Line()
	}
	for _, problem := range report.Problems {
		s.Wrap(output.Part{Style: output.Yellow, Text: "! "}, len(margin), output.Part{Text: problem})
	}
}

func drawFindings(s *output.Screen, findings []Finding, now time.Time) {
	for _, f := range findings {
		text := f.Message
		if f.Index != nil {
			text = fmt.Sprintf("GPU %d (%s)%s: %s", *f.Index, f.GPU, part(f.Ailment), text)
		}
		if f.Since != nil && !f.Since.IsZero() {
			text += ", since " + duration.HumanDuration(now.Sub(f.Since.Time))
		}
		s.Wrap(output.Part{Style: styleOf(f.Severity), Text: fmt.Sprintf("%s%-*s", margin, indent-len(margin), f.Severity)}, indent, output.Part{Text: text})
		for _, p := range f.Pods {
			row(s, "pod", p.String())
		}
		for _, doing := range f.Doing {
			row(s, "now", doing)
		}
		if f.Help != "" {
			row(s, "do", f.Help)
		}
	}
}

// row writes one row below a finding.
func row(s *output.Screen, name, text string) {
	s.Wrap(output.Part{Style: output.Dim, Text: fmt.Sprintf("%*s%-*s", indent, "", label-indent, name)}, label, output.Part{Text: text})
}

// part says which part of the GPU a fault is of.
func part(a *gpus.Ailment) string {
	if a == nil || len(a.Devices) == 0 {
		return ""
	}
	if len(a.Slices) == 0 {
		return ", " + strings.Join(a.Devices, ", ")
	}
	return ", memory slices " + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(a.Slices), "[]")), ", ")
}

// String is the pod for people.
func (p Sufferer) String() string {
	who := "claim " + p.Namespace + "/" + p.Claim + ", used by no pod"
	if p.Pod != "" {
		who = p.Namespace + "/" + p.Pod
		if p.Phase != "" {
			who += " (" + p.Phase + ")"
		}
		who += ", claim " + p.Claim
	}
	return who + ", device " + p.Device + told(p.Says)
}

// drawHistory writes the last remediations.
func drawHistory(s *output.Screen, history []v1alpha1.RemedyRecord) {
	for _, r := range history[:min(len(history), mostRemembered)] {
		text := fmt.Sprintf("%s  %s  %s: %s after %s", r.Ended.UTC().Format("2006-01-02 15:04:05Z"), r.GPU, strings.Join(r.Faults, ", "), r.Outcome,
			duration.HumanDuration(r.Ended.Sub(r.Began.Time)))
		s.Wrap(output.Part{Style: output.Dim, Text: fmt.Sprintf("%s%-*s", margin, indent-len(margin), "history")}, indent, output.Part{Style: output.Dim, Text: text + told(r.Message)})
	}
}

func wellOr(severity string) string {
	if severity == "" {
		return "well"
	}
	return severity
}

func styleOf(severity string) output.Style {
	switch {
	case severity == "":
		return output.Green
	case slices.Contains([]string{gpu.Critical.String(), gpu.Fatal.String()}, severity):
		return output.Red
	}
	return output.Yellow
}
