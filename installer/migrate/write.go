package migrate

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// width is how wide lists of fields are written.
const width = 120

// Write writes the objects as YAML, after a comment that lists what was not converted.
func (r Result) Write(w io.Writer) error {
	var text strings.Builder
	r.comment(&text)
	var objects []any
	if r.Policy != nil {
		objects = append(objects, r.Policy)
	}
	for i := range r.Drivers {
		objects = append(objects, &r.Drivers[i])
	}
	for i, object := range objects {
		if i > 0 {
			text.WriteString("---\n")
		}
		content, err := tidy(object)
		if err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
		text.Write(content)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// comment lists the notes, those of a reason together.
func (r Result) comment(text *strings.Builder) {
	text.WriteString("# Written by tessera migrate. Review it, then: kubectl apply --server-side -f <file>\n")
	if len(r.Notes) == 0 {
		text.WriteString("# Every field was converted.\n")
		return
	}
	fmt.Fprintf(text, "# %d fields were not converted:\n", len(r.Notes))
	type group struct{ source, reason string }
	var order []group
	fields := map[group][]string{}
	for _, note := range r.Notes {
		g := group{note.Source, note.Reason}
		if fields[g] == nil {
			order = append(order, g)
		}
		fields[g] = append(fields[g], note.Field)
	}
	source := ""
	for _, g := range order {
		if g.source != source {
			source = g.source
			fmt.Fprintf(text, "#\n# %s\n", source)
		}
		for _, line := range wrap(fields[g], ", ") {
			fmt.Fprintf(text, "# - %s\n", line)
		}
		for _, line := range wrap(strings.Fields(g.reason), " ") {
			fmt.Fprintf(text, "#     %s\n", line)
		}
	}
	text.WriteString("#\n")
}

// wrap joins words to lines.
func wrap(words []string, separator string) []string {
	var lines []string
	for _, word := range words {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+len(separator)+len(word) <= width {
			lines[last] += separator + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// tidy encodes an object without its status and without empty objects.
func tidy(object any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, err
	}
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	prune(content)
	return yaml.Marshal(content)
}

// prune removes empty objects, except selectors: an empty selector selects all.
func prune(object map[string]any) {
	for key, value := range object {
		switch inner := value.(type) {
		case map[string]any:
			prune(inner)
			if len(inner) == 0 && key != "nodeSelector" {
				delete(object, key)
			}
		case []any:
			for _, element := range inner {
				if inner, ok := element.(map[string]any); ok {
					prune(inner)
				}
			}
		}
	}
}
