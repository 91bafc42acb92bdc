package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// stdin is the file name of standard input.
const stdin = "-"

// document is one object of a file, or the error of reading it.
type document struct {
	file string
	// number is the position of the document in the file, from 1. The items of a List have the same number.
	number int
	// raw is the object as JSON.
	raw []byte
	err error
}

// readDocuments returns the documents of the files in order; the files of a folder are sorted by name. It fails when a file cannot be read; an invalid
// document is returned with its error.
func readDocuments(files []string, in io.Reader) ([]document, error) {
	var documents []document
	for _, file := range files {
		if file == stdin {
			text, err := io.ReadAll(in)
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			documents = append(documents, splitDocuments(file, text)...)
			continue
		}
		paths, err := findManifests(file)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("read manifest: %w", err)
			}
			documents = append(documents, splitDocuments(path, text)...)
		}
	}
	return documents, nil
}

// findManifests returns the file itself or the manifests of a folder, without its subfolders.
func findManifests(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find manifests: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("find manifests: %w", err)
	}
	var found []string
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			found = append(found, filepath.Join(path, entry.Name()))
		}
	}
	return found, nil
}

// splitDocuments returns the documents of a file, a List as its items.
func splitDocuments(file string, text []byte) []document {
	var documents []document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents
		}
		if err != nil {
			return append(documents, document{file: file, number: number, err: err})
		}
		raw, err := yaml.YAMLToJSONStrict(part)
		if err != nil {
			documents = append(documents, document{file: file, number: number, err: fmt.Errorf("invalid YAML: %s", strings.Join(strings.Fields(err.Error()), " "))})
			continue
		}
		for _, raw := range listItems(raw) {
			documents = append(documents, document{file: file, number: number, raw: raw})
		}
	}
}

// listItems returns the objects of a List, or the object itself; nil for an empty document.
func listItems(raw []byte) [][]byte {
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	switch err := json.Unmarshal(raw, &list); {
	case string(raw) == "null":
		return nil
	case err != nil || !strings.HasSuffix(list.Kind, "List"):
		return [][]byte{raw}
	}
	var objects [][]byte
	for _, item := range list.Items {
		objects = append(objects, listItems(item)...)
	}
	return objects
}
