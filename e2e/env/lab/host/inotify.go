package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The inotify instances of all machines count for one user. A node needs about ten for kubelet, containerd and the
// agent: two labs exceed the kernel's default of 128, and kubelet then exits at its start.
const (
	inotifySetting   = "fs.inotify.max_user_instances"
	inotifyFile      = "/proc/sys/fs/inotify/max_user_instances"
	inotifyInstances = 1024
)

func readInotifyInstances(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", inotifySetting, err)
	}
	instances, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", inotifySetting, err)
	}
	return instances, nil
}

// raiseInotifyInstances raises the limit until the next boot. It never lowers the limit.
func raiseInotifyInstances(file string) error {
	instances, err := readInotifyInstances(file)
	if err != nil || instances >= inotifyInstances {
		return err
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(inotifyInstances)), 0o644); err != nil {
		return fmt.Errorf("raise %s from %d to %d: %w", inotifySetting, instances, inotifyInstances, err)
	}
	return nil
}
