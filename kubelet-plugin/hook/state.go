package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxState is the maximum size of the OCI state in bytes; runtimes write a few hundred.
const maxState = 1 << 20

// containerRoot opens the root file system of the container whose OCI state the runtime writes to every hook (OCI
// runtime specification, State): the state has the path of the bundle, the bundle's config.json that of the root.
func containerRoot(state io.Reader) (root, error) {
	var container struct {
		Bundle string `json:"bundle"`
	}
	if err := json.NewDecoder(io.LimitReader(state, maxState)).Decode(&container); err != nil {
		return root{}, fmt.Errorf("read the container's state: %w", err)
	}
	if !filepath.IsAbs(container.Bundle) {
		return root{}, fmt.Errorf("read the container's state: bundle %q is no absolute path", container.Bundle)
	}
	text, err := os.ReadFile(filepath.Join(container.Bundle, "config.json"))
	if err != nil {
		return root{}, fmt.Errorf("read the container's configuration: %w", err)
	}
	var config struct {
		Root struct {
			Path string `json:"path"`
		} `json:"root"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return root{}, fmt.Errorf("read the container's configuration in %s: %w", container.Bundle, err)
	}
	path := config.Root.Path
	if path == "" {
		return root{}, fmt.Errorf("read the container's configuration in %s: it has no root", container.Bundle)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(container.Bundle, path)
	}
	if filepath.Clean(path) == "/" {
		return root{}, errors.New("the container's root is the host's: refused")
	}
	return openRoot(path)
}
