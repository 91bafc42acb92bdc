package check

import (
	"regexp"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// selection is the shape and the driver of the devices that a DeviceClass selects. An empty driver is any.
type selection struct {
	driver string
	shape  gpu.Shape
}

var (
	// byType and byDriver match the parts of a class's expression that select a shape and a driver.
	byType   = regexp.MustCompile(`device\.attributes\[['"]([a-z0-9.-]+)['"]\]\.type\s*==\s*['"]([a-z]+)['"]`)
	byDriver = regexp.MustCompile(`device\.driver\s*==\s*['"]([a-z0-9.-]+)['"]`)
	// alternative matches operators with which an expression may select devices of several shapes.
	alternative = regexp.MustCompile(`\|\||\?|![^=]`)
)

// selected returns what the class selects, derived without devices: from its expressions when the class is among the documents, otherwise from its
// name when it is one of Tessera's classes. It is false when that is not possible.
func (c checker) selected(name string) (selection, bool) {
	class, ok := c.classes[name]
	if !ok {
		return knownClass(name)
	}
	var found selection
	for _, selector := range class.Spec.Selectors {
		if selector.CEL == nil || alternative.MatchString(selector.CEL.Expression) {
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

// knownClass returns what the DeviceClass of Tessera's manifests with the name selects. The classes of tessera.dev exist with
// either driver name.
func knownClass(name string) (selection, bool) {
	prefix, _, _ := strings.Cut(name, ".")
	switch {
	case name == "gpu.nvidia.com":
		return selection{v1alpha1.NVIDIADriverName, gpu.Whole}, true
	case name == "mig.nvidia.com":
		return selection{v1alpha1.NVIDIADriverName, gpu.MIG}, true
	case name == "vfio.gpu.nvidia.com":
		return selection{v1alpha1.NVIDIADriverName, gpu.VFIO}, true
	case !strings.HasSuffix(name, ".tessera.dev"):
		return selection{}, false
	case strings.HasPrefix(name, "mig-"):
		return selection{shape: gpu.MIG}, true
	}
	shape, err := gpu.ParseShape(prefix)
	return selection{shape: shape}, err == nil && name == prefix+".tessera.dev"
}
