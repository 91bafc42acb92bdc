package fakegpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// Spec describes the machine to install.
type Spec struct {
	// Node is the name of the node; the UUIDs of its GPUs follow from it. The default is node1.
	Node string `json:"node"`
	// Machine is a machine of the catalogue, such as h100x8.
	Machine string `json:"machine"`
	// DriverVersion defaults to the catalogue's. A version of branch 535 or older installs a library
	// without the functions that are newer than it.
	DriverVersion string `json:"driverVersion"`
	// Kernel is the release of the machine's kernel, by default 6.8.0-79-generic.
	Kernel string `json:"kernel,omitempty"`
	// Bare omits the driver: the GPUs are installed, and Module loads the rest.
	Bare bool `json:"bare,omitempty"`
}

func (s Spec) withDefaults() Spec {
	if s.Node == "" {
		s.Node = "node1"
	}
	if s.Kernel == "" {
		s.Kernel = "6.8.0-79-generic"
	}
	if s.DriverVersion == "" && !s.Bare {
		s.DriverVersion = catalog.DriverVersion
	}
	return s
}

// specFile keeps the spec of an installed folder.
const specFile = "spec.json"

func (s Spec) write(dir string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, specFile), append(data, '\n'), 0o644)
}

// readMachine returns the machine under dir.
func readMachine(dir string) (catalog.Machine, error) {
	spec, err := ReadSpec(dir)
	if err != nil {
		return catalog.Machine{}, err
	}
	return catalog.FindMachine(spec.Machine)
}

// ReadSpec returns the spec of the machine under dir.
func ReadSpec(dir string) (Spec, error) {
	data, err := os.ReadFile(filepath.Join(dir, specFile))
	if errors.Is(err, os.ErrNotExist) {
		return Spec{}, fmt.Errorf("no fake machine under %s", dir)
	}
	if err != nil {
		return Spec{}, err
	}
	var spec Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return Spec{}, fmt.Errorf("read %s: %w", filepath.Join(dir, specFile), err)
	}
	return spec, nil
}

// cudaVersion returns a driver's value for nvmlSystemGetCudaDriverVersion: 1000 × major + 10 × minor.
func cudaVersion(driver string) (uint32, error) {
	branch, _, _ := strings.Cut(driver, ".")
	number, err := strconv.Atoi(branch)
	if err != nil {
		return 0, fmt.Errorf("driver version %q: must be like %s", driver, catalog.DriverVersion)
	}
	switch {
	case number >= 615:
		return 13040, nil
	case number >= 580:
		return 13000, nil
	case number >= 570:
		return 12080, nil
	case number >= 550:
		return 12040, nil
	}
	return 12020, nil
}
