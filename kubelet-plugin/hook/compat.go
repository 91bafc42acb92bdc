package hook

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

const (
	compatFolder = "/usr/local/cuda/compat"
	compatPrefix = "libcuda.so."
	// compatSection is the note in which a compatibility library lists the drivers that it supports.
	compatSection = ".note.cuda.fwd_compatibility"
	compatOwner   = "NVIDIA Corporation"
)

// enableCUDACompat puts the image's compatibility libraries before the driver's in the search order, if the image has
// them and they support the driver; otherwise it removes the drop-in of an earlier run.
func enableCUDACompat(c container, o options) error {
	suits, err := c.compatSupportsDriver(o.driver)
	switch {
	case err != nil:
		c.warn("CUDA compatibility libraries are not used: %v", err)
		return c.remove(compatDropIn)
	case !suits:
		return c.remove(compatDropIn)
	}
	return c.write(compatDropIn, lines([]string{compatFolder}))
}

// compatSupportsDriver reports whether the image's libcuda is newer than the driver and supports it. A library without
// the note supports drivers of an older branch.
func (r root) compatSupportsDriver(driver string) (bool, error) {
	name, err := r.compatLibrary()
	if err != nil || name == "" {
		return false, err
	}
	compat, err := parseVersion(strings.TrimPrefix(name, compatPrefix))
	if err != nil {
		return false, err
	}
	host, err := parseVersion(driver)
	if err != nil {
		return false, err
	}
	branches, err := r.compatBranches(path.Join(compatFolder, name))
	if err != nil {
		return false, err
	}
	if branches == nil {
		return compat[0] > host[0], nil
	}
	return slices.Contains(branches, host[0]) && slices.Compare(compat, host) > 0, nil
}

// compatLibrary returns the name of the image's libcuda with its version; empty if it has none.
func (r root) compatLibrary() (string, error) {
	folder, err := r.folder(compatFolder)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer folder.Close()
	listed := 0
	names, err := listNames(folder, &listed, func(name string) bool {
		ok, err := path.Match(compatPrefix+"*.*", name)
		return err == nil && ok
	})
	if err != nil {
		return "", fmt.Errorf("list %s: %w", compatFolder, err)
	}
	if len(names) > 1 {
		slices.Sort(names)
		return "", fmt.Errorf("%s has several: %s", compatFolder, strings.Join(names, ", "))
	}
	return strings.Join(names, ""), nil
}

// compatBranches returns the driver branches in the library's note; nil if it has no note.
func (r root) compatBranches(library string) ([]int, error) {
	handle, err := r.lookup(library)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	fd, err := reopen(int(handle.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", library, err)
	}
	defer unix.Close(fd)
	note, ok, err := ldso.ReadSection(descriptor(fd), compatSection)
	if err != nil || !ok {
		return nil, err
	}
	branches, err := parseNote(note)
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", compatSection, library, err)
	}
	return branches, nil
}

// parseNote returns the driver branches of an ELF note: a header with the sizes of the owner's name and of the
// description, then both, padded to the section's alignment. The description is JSON.
func parseNote(note ldso.Section) ([]int, error) {
	const header = 12
	data, align := note.Data, max(note.Align, 4)
	if len(data) < header || align > 16 {
		return nil, errors.New("is malformed")
	}
	nameSize := uint64(binary.LittleEndian.Uint32(data))
	textSize := uint64(binary.LittleEndian.Uint32(data[4:]))
	textAt := header + (nameSize+align-1)/align*align
	if textAt+textSize > uint64(len(data)) {
		return nil, errors.New("cut off")
	}
	if owner := string(bytes.TrimRight(data[header:header+nameSize], "\x00")); owner != compatOwner {
		return nil, fmt.Errorf("of %q", owner)
	}
	var description struct{ Driver []int }
	if err := json.Unmarshal(bytes.TrimRight(data[textAt:textAt+textSize], "\x00"), &description); err != nil {
		return nil, err
	}
	return append([]int{}, description.Driver...), nil
}

// parseVersion returns the numbers of a driver version: 580.65.06 is 580, 65, 6.
func parseVersion(version string) ([]int, error) {
	var numbers []int
	for part := range strings.SplitSeq(version, ".") {
		number, err := strconv.Atoi(part)
		if err != nil || number < 0 {
			return nil, fmt.Errorf("%q is no driver version", version)
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}
