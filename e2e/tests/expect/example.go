package expect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Example is one manifest.
type Example struct {
	// File is the manifest's name, Title the first line of its comment.
	File, Title string
	// Text is the manifest itself.
	Text string
	// Objects is everything in the manifest, in order.
	Objects []*unstructured.Unstructured
	// Subjects are the pods, jobs and Deployments in it, and what must be refused.
	Subjects []Subject
}

// Subject is an object with its expectation.
type Subject struct {
	Kind, Namespace, Name string
	Expectation           Expectation
}

// String returns kind namespace/name for messages.
func (s Subject) String() string {
	return fmt.Sprintf("%s %s/%s", strings.ToLower(s.Kind), s.Namespace, s.Name)
}

// Load reads every manifest of the folder, by name. A pod, a job or a Deployment without an expectation is
// an error, and so is one of anything else that is to run.
func Load(folder fs.FS) ([]Example, error) {
	files, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return nil, err
	}
	var examples []Example
	for _, file := range files {
		text, err := fs.ReadFile(folder, file)
		if err != nil {
			return nil, fmt.Errorf("read example: %w", err)
		}
		example, err := parseExample(path.Base(file), string(text))
		if err != nil {
			return nil, fmt.Errorf("read example %s: %w", file, err)
		}
		examples = append(examples, example)
	}
	return examples, nil
}

func parseExample(file, text string) (Example, error) {
	example := Example{File: file, Text: text, Title: title(text)}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return example, nil
		}
		if err != nil {
			return Example{}, err
		}
		if len(object.Object) == 0 {
			continue
		}
		example.Objects = append(example.Objects, object)
		if _, expected := object.GetAnnotations()[Annotation]; !expected && !runs(object.GetKind()) {
			continue
		}
		subject, err := parseSubject(object)
		if err != nil {
			return Example{}, fmt.Errorf("%s: %w", subject, err)
		}
		example.Subjects = append(example.Subjects, subject)
	}
}

func parseSubject(object *unstructured.Unstructured) (Subject, error) {
	subject := identify(object)
	annotation, ok := object.GetAnnotations()[Annotation]
	if !ok {
		return subject, fmt.Errorf("no annotation %s", Annotation)
	}
	expectation, err := Parse(annotation)
	if err == nil && expectation.Phase != Refused && !runs(subject.Kind) {
		err = fmt.Errorf("phase %s: only a Pod, a Job or a Deployment runs", expectation.Phase)
	}
	subject.Expectation = expectation
	return subject, err
}

// identify returns the object's subject without an expectation.
func identify(object *unstructured.Unstructured) Subject {
	subject := Subject{Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName()}
	if subject.Namespace == "" {
		subject.Namespace = "default"
	}
	return subject
}

// runs reports whether an object of the kind has pods.
func runs(kind string) bool { return kind == "Pod" || kind == "Job" || kind == "Deployment" }

// title returns the first line of the comment that a manifest begins with.
func title(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	comment, ok := strings.CutPrefix(first, "# ")
	if !ok {
		return ""
	}
	return strings.TrimSuffix(comment, ".")
}
