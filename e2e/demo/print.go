package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// print writes the example's verdict and, for its pods, the requests, the allocated devices and the devices reported by the containers.
func (r result) print(w io.Writer) {
	verdict := "ok"
	if len(r.complaints) > 0 {
		verdict = "UNEXPECTED"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s (%s): %s\n", r.example.Title, r.example.File, verdict)
	for _, line := range requestsOf(r.outcomes) {
		fmt.Fprintf(&text, "  requests  %s\n", line)
	}
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  POD\tNODE\tALLOCATED\tREPORTED BY CONTAINER") //nolint:errcheck // writes to a Builder do not fail
	pods := 0
	for _, outcome := range r.outcomes {
		for _, pod := range outcome.Pods {
			pods++
			for _, container := range pod.Containers {
				writeRows(table, pod, container)
			}
		}
	}
	if pods > 0 {
		table.Flush() //nolint:errcheck // writes to a Builder do not fail
	}
	for _, outcome := range r.outcomes {
		if outcome.Phase == expect.Pending || outcome.Phase == expect.Refused {
			fmt.Fprintf(&text, "  %s is %s: %s\n", outcome.Subject, outcome.Phase, strings.Join(strings.Fields(outcome.Explanation), " "))
		}
	}
	for _, complaint := range r.complaints {
		fmt.Fprintf(&text, "  UNEXPECTED: %s\n", complaint)
	}
	fmt.Fprint(w, text.String()) //nolint:errcheck // standard output
}

// requestsOf returns the requests of all pods without duplicates.
func requestsOf(outcomes []expect.Outcome) []string {
	var lines []string
	for _, outcome := range outcomes {
		for _, pod := range outcome.Pods {
			for _, line := range pod.Requests {
				if !slices.Contains(lines, line) {
					lines = append(lines, line)
				}
			}
		}
	}
	return lines
}

// writeRows writes a line for each device of the container: the device in the claim's allocation and the one that the container
// reports.
func writeRows(w io.Writer, pod expect.Pod, container expect.Container) {
	reported := reportedBy(container)
	if usage, ok := expect.ParseUsage(container.Log); ok && len(reported) > 0 {
		reported[len(reported)-1] += "; " + usage.String()
	}
	name, node := pod.Name, pod.Node
	if len(pod.Containers) > 1 {
		name += "/" + container.Name
	}
	for i := range max(len(container.Grants), len(reported), 1) {
		allocated, visible := "-", "-"
		if i < len(container.Grants) {
			allocated = container.Grants[i].Label()
		}
		if i < len(reported) {
			visible = reported[i]
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", name, node, allocated, visible) //nolint:errcheck // writes to a Builder do not fail
		name, node = "", ""
	}
}

// reportedBy returns the devices in the container's log, or the log's last line if it has no list of devices. Devices that
// belong to a grant come first, in the order of the grants. MIG devices of a GPU allocated for monitoring are not listed.
func reportedBy(container expect.Container) []string {
	report, ok := expect.ParseReport(container.Log)
	if !ok {
		lines := strings.FieldsFunc(container.Log, func(r rune) bool { return r == '\n' })
		return lines[max(len(lines)-1, 0):]
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
