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

// stdin is the name that stands for the standard input.
const stdin = "-"

// document is one object of a file, or why it could not be read.
type document struct {
	file string
	// number counts the documents of the file from 1; the items of a List share it.
	number int
	// raw is the object in JSON.
	raw []byte
	err error
}

// read returns the documents of the files in their order, the files of a folder by name. An error is
// about a file; what is wrong in one stands in its documents.
func read(files []string, in io.Reader) ([]document, error) {
	var documents []document
	for _, file := range files {
		if file == stdin {
			text, err := io.ReadAll(in)
			if err != nil {
				return nil, fmt.Errorf("read the standard input: %w", err)
			}
			documents = append(documents, split(file, text)...)
			continue
		}
		paths, err := manifests(file)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("read manifest: %w", err)
			}
			documents = append(documents, split(path, text)...)
		}
	}
	return documents, nil
}

// manifests returns the file itself, or the manifests in the folder.
func manifests(path string) ([]string, error) {
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

// split returns the documents of a file; a List becomes its items.
func split(file string, text []byte) []document {
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
			documents = append(documents, document{file: file, number: number, err: fmt.Errorf("not YAML: %s", strings.Join(strings.Fields(err.Error()), " "))})
			continue
		}
		for _, raw := range items(raw) {
			documents = append(documents, document{file: file, number: number, raw: raw})
		}
	}
}

// items returns the objects of a List, or the object itself; nothing for an empty document.
func items(raw []byte) [][]byte {
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
		objects = append(objects, items(item)...)
	}
	return objects
}
