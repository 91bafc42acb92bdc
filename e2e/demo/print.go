package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// print writes what the example's pods asked for, were given and see.
func (r result) print(w io.Writer) {
	verdict := "ok"
	if len(r.complaints) > 0 {
		verdict = "NOT AS PROMISED"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s (%s): %s\n", r.example.Title, r.example.File, verdict)
	for _, line := range asked(r.outcomes) {
		fmt.Fprintf(&text, "  asked  %s\n", line)
	}
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  POD\tNODE\tGOT\tSEES") //nolint:errcheck // a Builder takes everything
	pods := 0
	for _, outcome := range r.outcomes {
		for _, pod := range outcome.Pods {
			pods++
			for _, container := range pod.Containers {
				rows(table, pod, container)
			}
		}
	}
	if pods > 0 {
		table.Flush() //nolint:errcheck // a Builder takes everything
	}
	for _, outcome := range r.outcomes {
		if outcome.Phase == expect.Pending || outcome.Phase == expect.Refused {
			fmt.Fprintf(&text, "  %s is %s: %s\n", outcome.Subject, outcome.Phase, strings.Join(strings.Fields(outcome.Explanation), " "))
		}
	}
	for _, complaint := range r.complaints {
		fmt.Fprintf(&text, "  NOT AS PROMISED: %s\n", complaint)
	}
	fmt.Fprint(w, text.String()) //nolint:errcheck // standard output
}

// asked returns the wishes of all pods, each once.
func asked(outcomes []expect.Outcome) []string {
	var lines []string
	for _, outcome := range outcomes {
		for _, pod := range outcome.Pods {
			for _, line := range pod.Asked {
				if !slices.Contains(lines, line) {
					lines = append(lines, line)
				}
			}
		}
	}
	return lines
}

// rows writes a line for each device of the container: what the API server says it got beside what it
// says it sees.
func rows(w io.Writer, pod expect.Pod, container expect.Container) {
	seen := sees(container)
	if usage, ok := expect.ParseUsage(container.Log); ok && len(seen) > 0 {
		seen[len(seen)-1] += "; " + usage.String()
	}
	name, node := pod.Name, pod.Node
	if len(pod.Containers) > 1 {
		name += "/" + container.Name
	}
	for i := range max(len(container.Grants), len(seen), 1) {
		got, view := "-", "-"
		if i < len(container.Grants) {
			got = container.Grants[i].Label()
		}
		if i < len(seen) {
			view = seen[i]
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", name, node, got, view) //nolint:errcheck // a Builder takes everything
		name, node = "", ""
	}
}

// sees says what the container sees: its devices, or the end of what it printed. Devices stand in the
// order of the grants as far as they belong to one; what lies on a watched GPU is not listed.
func sees(container expect.Container) []string {
	report, ok := expect.ParseReport(container.Log)
	if !ok {
		lines := strings.Split(strings.TrimSpace(container.Log), "\n")
		return lines[len(lines)-1:]
	}
	devices := report.Devices()
	var lines []string
	for _, grant := range container.Grants {
		if gpu, watched := grant.Watched(report); watched {
			lines = append(lines, gpu.String())
			devices = slices.DeleteFunc(devices, func(d expect.Seen) bool { return d.UUID == gpu.UUID || d.Parent == gpu.UUID })
			continue
		}
		i := slices.IndexFunc(devices, grant.Is)
		if i >= 0 {
			lines = append(lines, devices[i].String())
			devices = slices.Delete(devices, i, i+1)
		}
	}
	for _, device := range devices {
		lines = append(lines, device.String())
	}
	return lines
}
