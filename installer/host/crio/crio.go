// Package crio reads the configuration of CRI-O. It changes nothing.
package crio

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pelletier/go-toml/v2"

	"github.com/tessera-gpu/tessera/installer/host/containerd"
)

// Main is the path of CRI-O's main file, dropIns the pattern of the files that override it, in the order of their names.
const (
	Main    = "/etc/crio/crio.conf"
	dropIns = "/etc/crio/crio.conf.d/*"
)

// document has the relevant parts of a file.
type document struct {
	CRIO struct {
		Runtime struct {
			Default  string `toml:"default_runtime"`
			Runtimes map[string]struct {
				Path string `toml:"runtime_path"`
			} `toml:"runtimes"`
		} `toml:"runtime"`
	} `toml:"crio"`
}

// NVIDIARuntime returns the handler of containers without a RuntimeClass if it is NVIDIA's container runtime, and otherwise an empty text.
// A missing main file counts as empty. Source: crio.conf(5), crio.conf.d(5).
func NVIDIARuntime(files containerd.Files) (string, error) {
	paths, err := files.Glob(dropIns)
	if err != nil {
		return "", fmt.Errorf("read CRI-O's configuration: %w", err)
	}
	name, programs := "", map[string]string{}
	for _, path := range append([]string{Main}, paths...) {
		text, err := files.Read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var d document
		if err == nil {
			err = toml.Unmarshal(text, &d)
		}
		if err != nil {
			return "", fmt.Errorf("read CRI-O's configuration %s: %w", path, err)
		}
		name = cmp.Or(d.CRIO.Runtime.Default, name)
		for handler, h := range d.CRIO.Runtime.Runtimes {
			programs[handler] = cmp.Or(h.Path, programs[handler])
		}
	}
	if !containerd.IsNVIDIA(name, programs[name]) {
		return "", nil
	}
	return name, nil
}
