package check

import (
	"fmt"

	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Report is the result for all files; its JSON is the output of -o json.
type Report struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Items      []Object `json:"items"`
}

// Object is the result for one object.
type Object struct {
	File string `json:"file"`
	// Document is the position of the object in the file, from 1.
	Document  int    `json:"document"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Problems is empty for a valid object.
	Problems []Problem `json:"problems"`
}

// Problem is one error in an object.
type Problem struct {
	// Field is the path of the field; empty for the object as a whole.
	Field string `json:"field,omitempty"`
	// Message is the error and what is valid.
	Message string `json:"message"`
}

// countInvalid returns the number of objects with problems.
func (r Report) countInvalid() int {
	var invalid int
	for _, object := range r.Items {
		if len(object.Problems) > 0 {
			invalid++
		}
	}
	return invalid
}

// draw writes a line per object and a line per problem.
func draw(screen *output.Screen, report Report) {
	for _, object := range report.Items {
		line := []output.Part{{Text: fmt.Sprintf("%s, document %d: %s: ", object.File, object.Document, object.title())}}
		if len(object.Problems) == 0 {
			screen.Line(append(line, output.Part{Style: output.Green, Text: "ok"})...)
			continue
		}
		screen.Line(append(line, output.Part{Style: output.Red, Text: "invalid"})...)
		for _, problem := range object.Problems {
			text := "  "
			if problem.Field != "" {
				text += problem.Field + ": "
			}
			screen.Line(output.Part{Text: text + problem.Message})
		}
	}
}

// title returns the object's kind, namespace and name.
func (o Object) title() string {
	switch {
	case o.Kind == "":
		return "unreadable"
	case o.Name == "":
		return o.Kind
	case o.Namespace == "":
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}
