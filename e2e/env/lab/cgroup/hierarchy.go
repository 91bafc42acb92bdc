// Package cgroup creates and removes the control groups of a lab's machines, on hosts with cgroup v1, v2 or both.
package cgroup

import (
	"slices"
	"strings"
)

// Hierarchy is one mounted tree of control groups.
type Hierarchy struct {
	Path    string
	Unified bool     // cgroup v2
	Options []string // v1: the controllers or the name by which it is mounted
}

// Hierarchies lists the hierarchies in the given mountinfo text (see proc(5)).
func Hierarchies(mountinfo string) []Hierarchy {
	var list []Hierarchy
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !found || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup2":
			list = append(list, Hierarchy{Path: left[4], Unified: true})
		case "cgroup":
			list = append(list, Hierarchy{Path: left[4], Options: identity(right[2])})
		}
	}
	return list
}

// identity returns those options of a v1 hierarchy that identify it.
func identity(options string) []string {
	var kept []string
	for option := range strings.SplitSeq(options, ",") {
		switch {
		case strings.HasPrefix(option, "name="):
			kept = append(kept, "none", option)
		case option == "rw", option == "ro", option == "xattr", option == "noprefix", option == "clone_children", strings.Contains(option, "="):
		default:
			kept = append(kept, option)
		}
	}
	return kept
}

// cpuset reports whether a new group accepts processes only after its CPUs and memory nodes are set.
func (h Hierarchy) cpuset() bool { return slices.Contains(h.Options, "cpuset") }
