package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// What stands above the lists of examples.
const (
	ownExamples = `# Examples

One manifest per feature. The annotation ${tessera.dev/expect}$ on each pod, job and Deployment says what must come of it,
on any other object that it is refused; ${make demo}$ and the end-to-end suites run all of them and hold them to it.
`
	nvidiaExamples = `# Examples written for NVIDIA's driver

What people have who come from NVIDIA's driver: its DeviceClasses, its attributes, its parameters. With the
component in the folder above they run on Tessera as they are. What must come of each stands in its annotation
${tessera.dev/expect}$; those that are wrong must be refused.
`
)

// renderExamples lists the examples with what their pods are expected to see.
func renderExamples(introduction string, examples []expect.Example) string {
	var text strings.Builder
	text.WriteString("<!-- Generated from the manifests by e2e/repo/generate; do not edit. -->\n")
	text.WriteString(strings.NewReplacer("${", "`", "}$", "`").Replace(introduction) + "\n")
	text.WriteString("| manifest | shows | expected |\n|---|---|---|\n")
	for _, example := range examples {
		var expected []string
		for _, subject := range example.Subjects {
			line := subject.Name + " " + summary(subject.Expectation)
			if !slices.Contains(expected, line) {
				expected = append(expected, line)
			}
		}
		fmt.Fprintf(&text, "| [%s](%s) | %s | %s |\n", example.File, example.File, example.Title, strings.Join(expected, "; "))
	}
	return text.String()
}

// summary says an expectation in words.
func summary(e expect.Expectation) string {
	switch e.Phase {
	case expect.Pending:
		return fmt.Sprintf("stays Pending: “%s”", e.Reason)
	case expect.Refused:
		return fmt.Sprintf("is refused: “%s”", e.Reason)
	case expect.Succeeded, expect.Running, expect.Failed, expect.Accepted:
	}
	var parts []string
	if view := viewText(e.View); view != "" {
		parts = append(parts, view)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Containers)) {
		parts = append(parts, name+" "+viewText(e.Containers[name]))
	}
	return strings.Join(append(parts, relations(e)...), ", ")
}

// relations says how what the containers see relates.
func relations(e expect.Expectation) []string {
	var parts []string
	switch e.Devices {
	case expect.Same:
		parts = append(parts, "all the same")
	case expect.Distinct:
		parts = append(parts, "each its own")
	case "":
	}
	if e.SameAs != "" {
		parts = append(parts, "the same as "+e.SameAs)
	}
	if e.While != "" {
		parts = append(parts, "while "+e.While+" runs")
	}
	for _, attribute := range e.Match {
		parts = append(parts, "with one "+attribute)
	}
	if e.Over > 0 {
		parts = append(parts, fmt.Sprintf("in turns on %d devices", e.Over))
	}
	return parts
}

func viewText(v expect.View) string {
	var parts []string
	if v.GPUs != nil {
		parts = append(parts, fmt.Sprintf("sees %d GPU", *v.GPUs))
	}
	for _, profile := range v.MIG {
		if profile == "*" {
			profile = "any profile"
		}
		parts = append(parts, "sees MIG "+profile)
	}
	if v.Watches != nil {
		parts = append(parts, fmt.Sprintf("watches %d GPU", *v.Watches))
	}
	if v.Allocates != nil {
		parts = append(parts, fmt.Sprintf("can allocate %s", v.Allocates))
	}
	if v.Multiprocessors != nil {
		parts = append(parts, fmt.Sprintf("has %d multiprocessors", *v.Multiprocessors))
	}
	if v.Memory != nil {
		parts = append(parts, "at least "+v.Memory.String())
	}
	if v.TimeSlice != "" {
		parts = append(parts, "has the time slice "+v.TimeSlice)
	}
	if v.Log != "" {
		parts = append(parts, fmt.Sprintf("prints “%s”", v.Log))
	}
	return strings.Join(parts, ", ")
}
