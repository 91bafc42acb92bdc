// Package cgroup reads the control groups of processes.
package cgroup

import "strings"

// Unified returns the path that /proc/PID/cgroup, of which text is the content, has in the hierarchy of version 2; false on a host that has version 1 only.
// Source: cgroups(7).
func Unified(text string) (path string, ok bool) {
	for line := range strings.Lines(text) {
		if path, ok = strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, true
		}
	}
	return "", false
}
