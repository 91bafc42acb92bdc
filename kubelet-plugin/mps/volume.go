package mps

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// volume is a tmpfs of a daemon's pod. Clients write to some of them, and must not fill a file system of the host. kubelet makes it with the size when
// the pod starts and removes it with the pod; the supervisor sets what kubelet has no field for.
type volume struct {
	name string
	// size is the limit of the data, an amount or a percentage of the node's memory; inodes is that of files and folders. Unused memory is not
	// allocated.
	size   string
	inodes int
	// mode are the permissions of its root; kubelet's are 0777.
	mode os.FileMode
}

// The volumes. sharedMemory is /dev/shm of the daemon and of its clients, which run as different users; it has the size of a tmpfs by default, because
// programs that load data need gigabytes of it. What a client writes is memory of its container. pipes has the sockets of the daemon, which use inodes only.
var (
	sharedMemory = volume{name: "shm", size: "50%", inodes: 1 << 16, mode: os.ModeSticky | 0o777}
	pipes        = volume{name: pipeName, size: "4Mi", inodes: 1 << 10, mode: 0o755}
	logs         = volume{name: logName, size: "64Mi", inodes: 1 << 10, mode: 0o755}
)

// isShare reports whether the size is a percentage, which kubelet has no field for.
func (v volume) isShare() bool { return strings.HasSuffix(v.size, "%") }

// source returns the volume for a pod.
func (v volume) source() corev1.Volume {
	source := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
	if !v.isShare() {
		source.SizeLimit = new(resource.MustParse(v.size))
	}
	return corev1.Volume{Name: v.name, VolumeSource: corev1.VolumeSource{EmptyDir: source}}
}

// limit sets the permissions and the number of inodes of the volume, which is mounted at the path, and its size if that is a percentage.
func (v volume) limit(path string) error {
	err := os.Chmod(path, v.mode)
	options := fmt.Sprintf("nr_inodes=%d", v.inodes)
	if v.isShare() {
		options += ",size=" + v.size
	}
	if err == nil {
		var noSwap bool
		if noSwap, err = isNoSwap(path); noSwap {
			options += ",noswap" // kernels refuse to enable swap of a tmpfs
		}
	}
	if err == nil {
		err = unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options)
	}
	if err != nil {
		return fmt.Errorf("limit volume %s at %s to %d inodes: %w", v.name, path, v.inodes, err)
	}
	return nil
}

// isNoSwap reports whether the tmpfs at the path has the option noswap, with which kubelet mounts volumes in memory where the kernel has it.
func isNoSwap(path string) (bool, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	noSwap := false
	for line := range strings.Lines(string(text)) { // the last mount at a path hides the others
		mount, system, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(mount); len(fields) > 4 && fields[4] == path {
			noSwap = strings.Contains(system, ",noswap")
		}
	}
	return noSwap, nil
}

// limitVolumes limits the volumes of the supervisor's pod and reports whether it has them. The pod of an older agent has only the shared memory, and
// its other folders are the host's; such a pod is not changed.
func (s *Supervisor) limitVolumes() (bool, error) {
	var folder, pipe unix.Stat_t
	path := filepath.Join(s.Folder, pipeName)
	if err := unix.Stat(s.Folder, &folder); err != nil {
		return false, fmt.Errorf("stat %s: %w", s.Folder, err)
	}
	if err := unix.Stat(path, &pipe); err != nil || pipe.Dev == folder.Dev {
		return false, nil //nolint:nilerr // a pod without volumes has no folder yet
	}
	for path, v := range map[string]volume{path: pipes, filepath.Join(s.Folder, logName): logs, s.SharedMemory: sharedMemory} {
		if err := v.limit(path); err != nil {
			return false, err
		}
	}
	return true, nil
}
