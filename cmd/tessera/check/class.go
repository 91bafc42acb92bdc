package check

import (
	"regexp"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// selection is what a DeviceClass selects: devices of one shape, and of one driver unless it is empty.
type selection struct {
	driver string
	shape  gpu.Shape
}

var (
	// byType and byDriver are how a class's expression tells the shape and the driver of its devices.
	byType   = regexp.MustCompile(`device\.attributes\[['"]([a-z0-9.-]+)['"]\]\.type\s*==\s*['"]([a-z]+)['"]`)
	byDriver = regexp.MustCompile(`device\.driver\s*==\s*['"]([a-z0-9.-]+)['"]`)
	// choice is in an expression that may be true for devices of several shapes.
	choice = regexp.MustCompile(`\|\||\?|![^=]`)
)

// selected returns what the class selects, as far as that can be told without devices: from the class
// itself when it is among the documents, from its name when it is one that is installed with Tessera.
func (c court) selected(name string) (selection, bool) {
	class, ok := c.classes[name]
	if !ok {
		return shipped(name)
	}
	var found selection
	for _, selector := range class.Spec.Selectors {
		if selector.CEL == nil || choice.MatchString(selector.CEL.Expression) {
			continue
		}
		if m := byDriver.FindStringSubmatch(selector.CEL.Expression); m != nil {
			found.driver = m[1]
		}
		if m := byType.FindStringSubmatch(selector.CEL.Expression); m != nil {
			shape, err := gpu.ParseShape(m[2])
			if err != nil {
				return selection{}, false
			}
			found.shape = shape
		}
	}
	return found, found.shape != gpu.None
}

// shipped returns what the installed DeviceClass of the name selects. Those of tessera.dev are there
// with either driver name.
func shipped(name string) (selection, bool) {
	prefix, _, _ := strings.Cut(name, ".")
	switch {
	case name == "gpu.nvidia.com":
		return selection{v1alpha1.NVIDIADriverName, gpu.Whole}, true
	case name == "mig.nvidia.com":
		return selection{v1alpha1.NVIDIADriverName, gpu.MIG}, true
	case !strings.HasSuffix(name, ".tessera.dev"):
		return selection{}, false
	case strings.HasPrefix(name, "mig-"):
		return selection{shape: gpu.MIG}, true
	}
	shape, err := gpu.ParseShape(prefix)
	return selection{shape: shape}, err == nil && name == prefix+".tessera.dev"
}
