package render

import (
	_ "embed" // vgpu-types.txt
	"fmt"
	"strings"
)

//go:embed vgpu-types.txt
var vgpuTypes string

// vgpuConfig returns the configurations of the ConfigMap that the GPU Operator creates (assets/state-vgpu-device-manager/0500_configmap.yaml), in the format
// of NVIDIA's vGPU device manager (api/spec/v1/spec.go:33-43). The configuration with the name of a vGPU type creates on every GPU as many devices of the
// type as the GPU can have. The configuration default creates devices of a type that depends on the GPU's PCI device id.
func vgpuConfig() string {
	var all, filtered strings.Builder
	all.WriteString("version: v1\nvgpu-configs:\n")
	for line := range strings.Lines(vgpuTypes) {
		gpus, types, named := strings.Cut(line, ": ")
		switch {
		case strings.HasPrefix(line, "#"):
		case named:
			for gpu := range strings.SplitSeq(gpus, ",") {
				for entry := range strings.FieldsSeq(types) {
					profile, count, _ := strings.Cut(entry, "=")
					fmt.Fprintf(&all, "  %[1]s-%[2]s:\n  - devices: all\n    vgpu-devices: {%[1]s-%[2]s: %[3]s}\n", gpu, profile, count)
				}
			}
		default:
			filter, entry, _ := strings.Cut(strings.TrimSpace(line), " ")
			name, count, _ := strings.Cut(entry, "=")
			fmt.Fprintf(&filtered, "  - device-filter: %q\n    devices: all\n    vgpu-devices: {%s: %s}\n", filter, name, count)
		}
	}
	return all.String() + "  default:\n" + filtered.String()
}
