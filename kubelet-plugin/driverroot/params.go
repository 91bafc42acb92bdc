package driverroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// access reads the owner and permission bits that the driver requests for its nodes: DeviceFileUID, DeviceFileGID and DeviceFileMode in
// /proc/driver/nvidia/params, which are parameters of the kernel module. Without them, every user may open the nodes.
func (r Roots) access() (Access, error) {
	access := Access{Mode: 0o666}
	text, err := os.ReadFile(filepath.Join(r.Proc, "driver/nvidia/params"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return access, nil
	case err != nil:
		return Access{}, fmt.Errorf("read the driver's parameters: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		number, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
		if err != nil {
			continue // a parameter that is a text
		}
		switch name {
		case "DeviceFileUID":
			access.UID = uint32(number)
		case "DeviceFileGID":
			access.GID = uint32(number)
		case "DeviceFileMode":
			access.Mode = fs.FileMode(number) & fs.ModePerm
		}
	}
	return access, nil
}

// minors reads the minor numbers of the present GPUs, in ascending order.
func (r Roots) minors() ([]int, error) {
	files, err := filepath.Glob(filepath.Join(r.Proc, "driver/nvidia/gpus/*/information"))
	if err != nil {
		return nil, fmt.Errorf("list the driver's GPUs: %w", err)
	}
	var minors []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the minor number of a GPU: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			value, found := strings.CutPrefix(line, "Device Minor:")
			if minor, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16); found && err == nil {
				minors = append(minors, int(minor))
			}
		}
	}
	slices.Sort(minors)
	return minors, nil
}
