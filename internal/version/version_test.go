package version

import (
	"runtime/debug"
	"testing"
)

// What the linker sets has precedence over what the Go toolchain recorded.
func TestLinkerHasPrecedence(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123"}}}
	if got := Release(info) + " " + Revision(info); got != "v1.2.3 0123" {
		t.Errorf("without a stamp: %q", got)
	}
	release, revision = "v2.0.0", "4567"
	t.Cleanup(func() { release, revision = "", "" })
	if got := Release(info) + " " + Revision(info); got != "v2.0.0 4567" {
		t.Errorf("with a stamp: %q", got)
	}
	revision = ""
	if got := Revision(&debug.BuildInfo{}); got != "" {
		t.Errorf("without any revision: %q", got)
	}
}
