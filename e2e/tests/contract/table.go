// Package contract has the table of what NVIDIA's driver images do to a machine, and compares the fake driver with it. Package nvidia observes the
// images and writes the table.
package contract

import (
	_ "embed"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/tests/contract/machine"
)

// Image is a row of the table: one of NVIDIA's entry points.
type Image struct {
	// Name is the folder of the entry point below gpu-driver-container, Tag the end of the image's tag.
	Name string `json:"name"`
	Tag  string `json:"tag"`
	// Env are the variables that the entry point reads and does not set itself, with the lines that read them.
	Env map[string]string `json:"env"`
	// Install, Restart and Remove are the steps of an installation, of a restart with the same digest, and of a removal, in order.
	Install []Step `json:"install"`
	Restart []Step `json:"restart,omitempty"`
	Remove  []Step `json:"remove"`
	// Waits are the conditions for which it waits, Signals the handled signals, with their lines.
	Waits   []Step `json:"waits,omitempty"`
	Signals []Step `json:"signals"`
}

// Step is what an entry point does to the machine, and the line of its file that does it. Programs that it starts in the background are left out: they
// have no order. Steps of a signal's handler have no line.
type Step struct {
	Do string `json:"do"`
	At string `json:"at,omitempty"`
}

//go:embed testdata/contract.yaml
var table []byte

// Table returns the images of the table.
func Table() ([]Image, error) {
	var images []Image
	return images, yaml.UnmarshalStrict(table, &images)
}

// Find returns an image of the table.
func Find(images []Image, name string) (Image, bool) {
	i := slices.IndexFunc(images, func(image Image) bool { return image.Name == name })
	if i < 0 {
		return Image{}, false
	}
	return images[i], true
}

// Visible returns the steps that simulated hardware has as well: modules of the driver, files below /run/nvidia and the driver's root. It has no
// firmware, no daemons and no other modules.
func Visible(steps []Step) []string {
	var all []string
	for _, s := range steps {
		switch {
		case strings.HasPrefix(s.Do, "write /run/nvidia/"), strings.HasPrefix(s.Do, "remove /run/nvidia/"), strings.HasPrefix(s.Do, "modprobe nvidia"),
			strings.HasPrefix(s.Do, "rmmod "), strings.HasPrefix(s.Do, "mount --rbind"), strings.HasPrefix(s.Do, "umount "):
			all = append(all, s.Do)
		}
	}
	return all
}

// StepOf returns the step of a call, and "" if it changes nothing but the container, or is the probe's.
func StepOf(c machine.Call) string {
	if strings.Contains(strings.Join(c.Args, " "), ".driver-ctr-ready") || c.At == "" {
		return ""
	}
	switch c.Program {
	case "write":
		switch filepath.Base(c.Args[0]) {
		case "nvidia-driver.pid":
			if c.Args[1] == "" {
				return "" // it is opened and locked, and then written
			}
			return "write " + c.Args[0]
		case "nvidia-driver.state", "update-nvidia-driver":
			return "write " + c.Args[0]
		}
		return "write " + strings.Join(c.Args, " ")
	case "remove":
		if strings.HasSuffix(c.Args[0], ".driver-daemons-status") {
			return "" // the hook before termination
		}
		return "remove " + c.Args[0]
	case "modprobe", "rmmod", "mount", "umount", "chcon", "nvidia-persistenced", "nv-fabricmanager", "nvidia-gridd", "sriov-manage":
		return c.Program + " " + strings.Join(c.Args, " ")
	}
	return ""
}
