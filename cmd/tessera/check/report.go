package check

import (
	"fmt"

	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Report is what was found in the files: the answer in JSON.
type Report struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Items      []Object `json:"items"`
}

// Object is one object that was checked.
type Object struct {
	File string `json:"file"`
	// Document is the object's place in the file, counted from 1.
	Document  int    `json:"document"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Problems is empty for an object that is right.
	Problems []Problem `json:"problems"`
}

// Problem is one thing that is wrong.
type Problem struct {
	// Field is the path to it in the object; empty for the object as a whole.
	Field string `json:"field,omitempty"`
	// Message says what is wrong and what would be right.
	Message string `json:"message"`
}

func (r Report) wrong() int {
	var wrong int
	for _, object := range r.Items {
		if len(object.Problems) > 0 {
			wrong++
		}
	}
	return wrong
}

// draw writes one line for each object and one for each problem.
func draw(screen *output.Screen, report Report) {
	for _, object := range report.Items {
		line := []output.Part{{Text: fmt.Sprintf("%s, document %d: %s: ", object.File, object.Document, object.title())}}
		if len(object.Problems) == 0 {
			screen.Line(append(line, output.Part{Style: output.Green, Text: "ok"})...)
			continue
		}
		screen.Line(append(line, output.Part{Style: output.Red, Text: "wrong"})...)
		for _, problem := range object.Problems {
			text := "  "
			if problem.Field != "" {
				text += problem.Field + ": "
			}
			screen.Line(output.Part{Text: text + problem.Message})
		}
	}
}

// title returns kind and name for people.
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
