package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/lab/cgroup"
	"github.com/tessera-gpu/tessera/e2e/env/lab/netns"
)

// Down stops the lab in a folder and removes everything it created on the host: processes, control groups, network,
// mounts, files. It works after a crash at any point, and has no effect if there is no lab. The state is removed last:
// an interrupted Down can be repeated.
func Down(ctx context.Context, folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return fmt.Errorf("find the lab's folder: %w", err)
	}
	s, err := load(folder)
	if errors.Is(err, ErrNoLab) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := endMachines(ctx, s, folder); err != nil {
		return err
	}
	if err := dropLink(ctx, netns.Namespace(""), s.hostLink()); err != nil {
		return err
	}
	if err := unmountBelow(folder); err != nil {
		return err
	}
	return removeFolder(folder)
}

// endMachines kills every machine, recorded or not: the lab's control groups contain all its processes.
func endMachines(ctx context.Context, s state, folder string) error {
	entries, err := os.ReadDir(filepath.Join(folder, "machines"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find the lab's machines: %w", err)
	}
	for _, entry := range entries {
		if err := s.machine(folder, entry.Name()).Kill(ctx); err != nil {
			return fmt.Errorf("end %s: %w", entry.Name(), err)
		}
	}
	tree, err := cgroup.Of(s.cgroup(""))
	if err != nil {
		return err
	}
	return tree.Remove(ctx)
}

// unmountBelow unmounts everything mounted below the folder, in reverse order of mounting.
func unmountBelow(folder string) error {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("find the lab's mounts: %w", err)
	}
	for _, point := range slices.Backward(mountPoints(string(mountinfo), folder)) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// mountPoints lists the mount points below the folder in the order they were mounted, from mountinfo text (see
// proc(5)).
func mountPoints(mountinfo, folder string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape.Replace(fields[4]); strings.HasPrefix(point, folder+"/") {
			points = append(points, point)
		}
	}
	return points
}

// removeFolder deletes the folder's content, then the state file that marks a lab, then the folder and an empty Base.
func removeFolder(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("remove the lab's folder: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if path == stateFile(folder) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove the lab's folder: %w", err)
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the lab's folder: %w", err)
	}
	if filepath.Dir(folder) == Base {
		_ = os.Remove(Base) // fails while another lab exists
	}
	return nil
}
