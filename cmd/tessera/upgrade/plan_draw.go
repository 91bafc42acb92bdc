package upgrade

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// draw writes the report for people.
func draw(s *output.Screen, report Report) {
	if len(report.Drivers) == 0 {
		line(s, output.Plain, "There is no ClusterPolicy: the installer changes nothing.")
		return
	}
	if report.Preview {
		line(s, output.Dim, "Effect of applying the files:")
	}
	for _, problem := range report.Problems {
		line(s, output.Red, problem)
	}
	for i, d := range report.Drivers {
		if i > 0 {
			line(s, output.Plain, "")
		}
		line(s, output.Bold, d.Name)
		drawDriver(s, d)
	}
}

func drawDriver(s *output.Screen, d Driver) {
	if d.Stale {
		line(s, output.Yellow, "  The installer has not processed the latest edit yet: the following is the state before the edit.")
	}
	if d.Paused {
		line(s, output.Yellow, "  Paused by the annotation "+v1alpha1.AnnotationPause+": no node starts an upgrade.")
	}
	if len(d.Conflicts) > 0 {
		line(s, output.Red, "  These nodes are also selected by another driver and stay unchanged: "+strings.Join(d.Conflicts, ", "))
	}
	if d.Rollout != nil {
		drawRollout(s, d.Name, *d.Rollout)
	}
	if d.Plan == nil || d.Plan.Nodes == 0 {
		line(s, output.Green, "  No node changes its driver, no pod loses its GPUs.")
		return
	}
	line(s, output.Plain, fmt.Sprintf("  %s to change, %s to lose GPUs, in this order:", quantity(d.Plan.Nodes, "node"), quantity(d.Plan.Pods, "pod")))
	var rows [][]string
	for i, w := range d.Plan.Waves {
		names := strings.Join(w.Nodes, ",")
		if more := int(w.Count) - len(w.Nodes); more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		rows = append(rows, []string{"  " + strconv.Itoa(i+1), strconv.Itoa(int(w.Count)), names})
	}
	if len(rows) > 0 {
		s.Table(output.Columns("  WAVE", "NODES", "NAMES"), rows)
	}
}

func drawRollout(s *output.Screen, object string, r v1alpha1.RolloutStatus) {
	style := output.Plain
	if r.Stage == v1alpha1.RolloutPaused {
		style = output.Yellow
	}
	text := fmt.Sprintf("  Rollout %s since %s: %d done, %d running, %d failed, %d waiting", r.Stage, r.Since.UTC().Format("2006-01-02 15:04:05Z"), r.Done, r.Running, r.Failed, r.Waiting)
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	line(s, style, text)
	if r.Stage == v1alpha1.RolloutPaused {
		line(s, output.Dim, "  To resume: "+resumeCommandLine(object))
	}
}

// resumeCommandLine returns the command that resumes the rollout of the object.
func resumeCommandLine(object string) string {
	if name, is := strings.CutPrefix(object, "NVIDIADriver/"); is {
		return "tessera upgrade resume nvidiadriver/" + name
	}
	return "tessera upgrade resume"
}

// resourceName returns the object's name for kubectl with its API group, because other groups have kinds of the same name.
func resourceName(object string) string {
	name, is := strings.CutPrefix(object, "ClusterPolicy/")
	if is {
		return "clusterpolicies.tessera.dev/" + name
	}
	return "nvidiadrivers.tessera.dev/" + strings.TrimPrefix(object, "NVIDIADriver/")
}

func line(s *output.Screen, style output.Style, text string) {
	s.Line(output.Part{Style: style, Text: text})
}

func quantity(n int32, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
