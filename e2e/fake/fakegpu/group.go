package fakegpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/internal/host/cgroup"
)

// AddGroup makes the folder of a control group below Hierarchy with the files that the kernel gives it: a tree of folders in the place of a hierarchy of
// version 2, for hosts that have none with these controllers.
func AddGroup(dir, path string, controllers ...string) (folder string, err error) {
	folder = filepath.Join(Hierarchy(dir), path)
	err = os.MkdirAll(folder, 0o755)
	for name, text := range map[string]string{"cgroup.type": "domain\n", "cgroup.controllers": strings.Join(controllers, " ") + "\n"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	return folder, errors.Join(err, writeRegions(dir))
}

// AddGroupOf is AddGroup for the group of the container whose OCI state is read, as a createRuntime hook.
func AddGroupOf(dir string, state io.Reader, controllers ...string) error {
	var container struct {
		PID int `json:"pid"`
	}
	if err := json.NewDecoder(state).Decode(&container); err != nil {
		return fmt.Errorf("read the state of the container: %w", err)
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(container.PID), "cgroup"))
	if err != nil {
		return err
	}
	path, found := cgroup.Unified(string(text))
	if !found {
		return fmt.Errorf("process %d has no control group of version 2", container.PID)
	}
	_, err = AddGroup(dir, path, controllers...)
	return err
}
