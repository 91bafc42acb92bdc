package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tessera-gpu/tessera/e2e/expect"
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
	for _, outcome := range r.outcomes {
		for _, pod := range outcome.Pods {
			for _, container := range pod.Containers {
				rows(table, pod, container)
			}
		}
	}
	table.Flush() //nolint:errcheck // a Builder takes everything
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
	name, node := pod.Name, pod.Node
	if len(pod.Containers) > 1 {
		name += "/" + container.Name
	}
	for i := range max(len(container.Grants), len(seen), 1) {
		got, view := "-", "-"
		if i < len(container.Grants) {
			got = container.Grants[i].Device
		}
		if i < len(seen) {
			view = seen[i]
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", name, node, got, view) //nolint:errcheck // a Builder takes everything
		name, node = "", ""
	}
}

// sees says what the container sees: its devices, or the end of what it printed. Devices stand in the
// order of the grants as far as they belong to one.
func sees(container expect.Container) []string {
	devices, ok := container.Seen()
	if !ok {
		lines := strings.Split(strings.TrimSpace(container.Log), "\n")
		return lines[len(lines)-1:]
	}
	var lines []string
	for _, grant := range container.Grants {
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
