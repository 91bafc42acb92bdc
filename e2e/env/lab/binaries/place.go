package binaries

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrNoSource is returned if the lab's modules are not found.
var ErrNoSource = errors.New("run this inside the repository: e2e/env/lab/modules was not found here or above")

// Source returns the repository root, searched from the working directory upwards.
func Source() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "e2e", "env", "lab", "modules"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", ErrNoSource
		}
		dir = filepath.Dir(dir)
	}
}

// DefaultCache returns $TESSERA_CACHE, or ~/.cache/tessera.
func DefaultCache() (string, error) {
	if dir := os.Getenv("TESSERA_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	return filepath.Join(home, ".cache", "tessera"), nil
}
