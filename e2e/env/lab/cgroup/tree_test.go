package cgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHierarchies(t *testing.T) {
	tests := []struct {
		name, mountinfo string
		want            []Hierarchy
	}{
		{
			"v2",
			"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n24 1 0:6 / /dev rw - devtmpfs udev rw\n",
			[]Hierarchy{{Path: "/sys/fs/cgroup", Unified: true}},
		},
		{
			"v1 with joined controllers and a v2 tree beside",
			"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
				"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
				"34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" +
				"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/x,name=systemd\n" +
				"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			[]Hierarchy{
				{Path: "/sys/fs/cgroup/cpu,cpuacct", Options: []string{"cpu", "cpuacct"}},
				{Path: "/sys/fs/cgroup/cpuset", Options: []string{"cpuset"}},
				{Path: "/sys/fs/cgroup/systemd", Options: []string{"none", "name=systemd"}},
				{Path: "/sys/fs/cgroup/unified", Unified: true},
			},
		},
		{"none", "24 1 0:6 / /dev rw - devtmpfs udev rw\n", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Hierarchies(test.mountinfo)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
