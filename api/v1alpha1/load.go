package v1alpha1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Load reads a NodeConfig from YAML or JSON, sets the defaults of absent fields and validates the result. It is strict: another kind, an
// unknown or repeated key and a second document are errors. A validation error lists every invalid field with its permitted values.
func Load(data []byte) (NodeConfig, error) {
	text, err := document(data)
	if err != nil {
		return NodeConfig{}, fmt.Errorf("read NodeConfig: %w", err)
	}
	var meta metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &meta); err != nil {
		return NodeConfig{}, fmt.Errorf("read NodeConfig: %w", err)
	}
	if meta.APIVersion != APIVersion || meta.Kind != NodeConfigKind {
		return NodeConfig{}, fmt.Errorf("read NodeConfig: apiVersion %q, kind %q: must be %s, %s", meta.APIVersion, meta.Kind, APIVersion, NodeConfigKind)
	}
	c := preset()
	strict, err := json.UnmarshalStrict(text, &c)
	if err := errors.Join(err, utilerrors.NewAggregate(strict)); err != nil {
		return NodeConfig{}, fmt.Errorf("read NodeConfig: %w", err)
	}
	c.complete()
	if err := c.validate().ToAggregate(); err != nil {
		return NodeConfig{}, fmt.Errorf("validate NodeConfig: %w", err)
	}
	return c, nil
}

// document returns the one document of a YAML file as JSON.
func document(data []byte) ([]byte, error) {
	var found []byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		part, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF) && found == nil:
			return nil, errors.New("the file is empty")
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, err
		}
		text, err := yaml.YAMLToJSONStrict(part)
		switch {
		case err != nil:
			return nil, err
		case string(text) == "null":
		case found != nil:
			return nil, errors.New("the file has more than one document")
		default:
			found = text
		}
	}
}
