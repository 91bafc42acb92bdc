package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// The introductions of the lists of examples.
const (
	ownExamples = `# Examples

One manifest per feature. The annotation ${tessera.dev/expect}$ on each pod, job and Deployment has the expected result; on any other object, that it is
refused. ${make demo}$ and the end-to-end suites run all manifests and check the results.
`
	nvidiaExamples = `# Examples written for NVIDIA's driver

Manifests with the DeviceClasses, attributes and parameters of NVIDIA's driver. With the component in the parent folder they run on Tessera unchanged. The
annotation ${tessera.dev/expect}$ has the expected result; invalid manifests must be refused.
`
)

// renderExamples returns the list of examples with their expected results.
func renderExamples(introduction string, examples []expect.Example) string {
	var text strings.Builder
	text.WriteString("<!-- Generated from the manifests by e2e/repo/generate; do not edit. -->\n")
	text.WriteString(strings.NewReplacer("${", "`", "}$", "`").Replace(introduction) + "\n")
	for _, example := range examples {
		var expected []string
		for _, subject := range example.Subjects {
			line := subject.Name + " " + summary(subject.Expectation)
			if !slices.Contains(expected, line) {
				expected = append(expected, line)
			}
		}
		writeEntry(&text, fmt.Sprintf("[%s](%s)", example.File, example.File), fmt.Sprintf("%s. Expected: %s.", example.Title, strings.Join(expected, "; ")))
	}
	return text.String()
}

// summary returns an expectation in words.
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

// relations returns the expected relations between the devices of containers and pods.
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
