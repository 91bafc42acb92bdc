package mig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// clients finds processes by their open files.
type clients struct {
	// proc is procfs, dev the folder of device nodes.
	proc, dev string
}

// Of returns the processes that have the GPU's device node open, as name (pid n), by pid. Processes of
// containers are seen from the host's pid namespace only.
func (c clients) Of(g gpu.GPU) []string {
	device, ok := number(filepath.Join(c.dev, fmt.Sprintf("nvidia%d", g.Minor)))
	if !ok {
		return nil
	}
	entries, err := os.ReadDir(c.proc)
	if err != nil {
		return nil
	}
	var found []string
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !c.opens(entry.Name(), device) {
			continue
		}
		name, err := os.ReadFile(filepath.Join(c.proc, entry.Name(), "comm"))
		if err != nil {
			name = []byte("unknown")
		}
		found = append(found, fmt.Sprintf("%s (pid %d)", strings.TrimSpace(string(name)), pid))
	}
	return found
}

// opens reports whether the process has the device open.
func (c clients) opens(pid string, device uint64) bool {
	folder := filepath.Join(c.proc, pid, "fd")
	files, err := os.ReadDir(folder)
	if err != nil {
		return false
	}
	for _, file := range files {
		if n, ok := number(filepath.Join(folder, file.Name())); ok && n == device {
			return true
		}
	}
	return false
}

// number returns the number of the device node at the path, with every link followed.
func number(path string) (uint64, bool) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(stat.Rdev), true
}
