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

// containerState is the part of the OCI state that hooks read, which the runtime writes to every hook (OCI runtime specification, State).
type containerState struct {
	PID    int    `json:"pid"`
	Bundle string `json:"bundle"`
}

// containerConfig is the part of the container's configuration, config.json in the bundle, that hooks read.
type containerConfig struct {
	Root struct {
		Path string `json:"path"`
	} `json:"root"`
	Process struct {
		Env []string `json:"env"`
	} `json:"process"`
	Annotations map[string]string `json:"annotations"`
	Hooks       struct {
		CreateRuntime []containerHook `json:"createRuntime"`
	} `json:"hooks"`
}

type containerHook struct {
	Args []string `json:"args"`
}

func readState(state io.Reader) (containerState, error) {
	var container containerState
	if err := json.NewDecoder(io.LimitReader(state, maxState)).Decode(&container); err != nil {
		return containerState{}, fmt.Errorf("read the container's state: %w", err)
	}
	if !filepath.IsAbs(container.Bundle) {
		return containerState{}, fmt.Errorf("read the container's state: bundle %q is no absolute path", container.Bundle)
	}
	return container, nil
}

func (s containerState) config() (config containerConfig, err error) {
	text, err := os.ReadFile(filepath.Join(s.Bundle, "config.json"))
	if err != nil {
		return config, fmt.Errorf("read the container's configuration: %w", err)
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return config, fmt.Errorf("read the container's configuration in %s: %w", s.Bundle, err)
	}
	return config, nil
}

// root opens the root file system of the container.
func (s containerState) root() (root, error) {
	config, err := s.config()
	if err != nil {
		return root{}, err
	}
	path := config.Root.Path
	if path == "" {
		return root{}, fmt.Errorf("read the container's configuration in %s: it has no root", s.Bundle)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.Bundle, path)
	}
	if filepath.Clean(path) == "/" {
		return root{}, errors.New("the container's root is the host's: refused")
	}
	return openRoot(path)
}
