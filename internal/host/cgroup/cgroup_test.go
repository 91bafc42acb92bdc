package cgroup

import "testing"

// A host with cgroup version 1 has no group of version 2.
func TestUnified(t *testing.T) {
	for text, want := range map[string]string{
		"0::/kubepods.slice/pod1\n":                                "/kubepods.slice/pod1",
		"4:memory:/kubepods/pod1\n1:name=systemd:/kubepods/pod1\n": "",
		"4:memory:/kubepods/pod1\n0::/system.slice\n":              "/system.slice",
		"": "",
	} {
		if got, ok := Unified(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
