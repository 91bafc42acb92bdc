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

// The columns of a finding: the severity begins after the margin, the message at indent, and the text of the rows below it at label.
const (
	margin = "  "
	indent = 12
	label  = indent + 8
)

// maxHistory is the number of past remediations that are drawn per node.
const maxHistory = 3

// Draw writes the report for people: the summary, then the cluster findings, then every node with a finding or a past remediation, and
// those that were named.
func Draw(s *output.Screen, report Report) {
	style := output.Green
	switch {
	case report.Bad():
		style = output.Red
	case !report.healthy():
		style = output.Yellow
	}
	s.Wrap(output.Part{}, 0, output.Part{Style: style, Text: report.Summary})
	if len(report.Cluster) > 0 {
		s.Line()
		s.Line(output.Part{Style: output.Bold, Text: "Cluster"})
		drawFindings(s, report.Cluster, report.Time.Time)
	}
	for _, n := range report.Nodes {
		if len(n.Findings) == 0 && len(n.History) == 0 && !report.Named {
			continue
		}
		s.Line()
		s.Line(output.Part{Style: output.Bold, Text: n.Name}, output.Part{Text: "   " + n.describe()},
			output.Part{Style: severityStyle(n.Severity), Text: "   " + severityText(n.Severity)})
		drawFindings(s, n.Findings, report.Time.Time)
		drawHistory(s, n.History)
	}
	if len(report.Problems)+len(report.Reduced) > 0 {
		s.Line()
	}
	for _, sentence := range report.Reduced {
		s.Wrap(output.Part{Text: "Reduced: "}, len(margin), output.Part{Text: sentence})
	}
	for _, problem := range report.Problems {
		s.Wrap(output.Part{Style: output.Yellow, Text: "! "}, len(margin), output.Part{Text: problem})
	}
}

// describe returns the number of GPUs, and the versions of driver and kernel as far as they are known.
func (n Node) describe() string {
	text := quantity(n.GPUs, "GPU")
	if n.Driver != "" {
		text += "   driver " + n.Driver
	}
	if n.Kernel != "" {
		text += "   kernel " + n.Kernel
	}
	return text
}

func drawFindings(s *output.Screen, findings []Finding, now time.Time) {
	for _, f := range findings {
		text := f.Message
		if f.Index != nil {
			text = fmt.Sprintf("GPU %d (%s)%s: %s", *f.Index, f.GPU, faultScope(f.Fault), text)
		}
		if f.Since != nil && !f.Since.IsZero() {
			text += ", since " + duration.HumanDuration(now.Sub(f.Since.Time))
		}
		s.Wrap(output.Part{Style: severityStyle(f.Severity), Text: fmt.Sprintf("%s%-*s", margin, indent-len(margin), f.Severity)}, indent, output.Part{Text: text})
		for _, p := range f.Pods {
			drawRow(s, "pod", p.String())
		}
		for _, status := range f.Status {
			drawRow(s, "status", status)
		}
		if f.NextStep != "" {
			drawRow(s, "next", f.NextStep)
		}
	}
}

// drawRow writes one row below a finding.
func drawRow(s *output.Screen, name, text string) {
	s.Wrap(output.Part{Style: output.Dim, Text: fmt.Sprintf("%*s%-*s", indent, "", label-indent, name)}, label, output.Part{Text: text})
}

// faultScope returns ", " and the memory slices or devices that a fault is limited to; empty for a fault of the whole GPU.
func faultScope(a *gpus.Fault) string {
	if a == nil || len(a.Devices) == 0 {
		return ""
	}
	if len(a.MemorySlices) == 0 {
		return ", " + strings.Join(a.Devices, ", ")
	}
	return ", memory slices " + joinInts(a.MemorySlices)
}

// joinInts returns the numbers separated by ", ".
func joinInts(numbers []int) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(numbers), "[]")), ", ")
}

// String returns the pod with its claim, device and health on one line.
func (p AffectedPod) String() string {
	user := "claim " + p.Namespace + "/" + p.Claim + ", used by no pod"
	if p.Pod != "" {
		user = p.Namespace + "/" + p.Pod
		if p.Phase != "" {
			user += " (" + p.Phase + ")"
		}
		user += ", claim " + p.Claim
	}
	return user + ", device " + p.Device + detail(p.Health)
}

// drawHistory writes the latest remediations of a node.
func drawHistory(s *output.Screen, history []v1alpha1.RemediationRecord) {
	for _, r := range history[:min(len(history), maxHistory)] {
		text := fmt.Sprintf("%s  %s  %s: %s after %s", r.Ended.UTC().Format("2006-01-02 15:04:05Z"), r.GPU, strings.Join(r.Faults, ", "), r.Outcome,
			duration.HumanDuration(r.Ended.Sub(r.Began.Time)))
		s.Wrap(output.Part{Style: output.Dim, Text: fmt.Sprintf("%s%-*s", margin, indent-len(margin), "history")}, indent,
			output.Part{Style: output.Dim, Text: text + detail(r.Message)})
	}
}

func severityText(severity string) string {
	if severity == "" {
		return "healthy"
	}
	return severity
}

func severityStyle(severity string) output.Style {
	switch {
	case severity == "":
		return output.Green
	case slices.Contains([]string{gpu.Critical.String(), gpu.Fatal.String()}, severity):
		return output.Red
	}
	return output.Yellow
}

// detail returns ": " and the text; empty for an empty text.
func detail(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
