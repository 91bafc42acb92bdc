// Package version has the version of the program.
package version

import (
	"cmp"
	"runtime/debug"
)

// The linker sets both variables in the programs of a release; deployments/images/bundle has the flags.
var release, revision string

// Release returns the version of the release. In a program that belongs to none, it returns the version of the module as the Go toolchain recorded it in
// info, such as v1.2.3 after `go install …@v1.2.3`.
func Release(info *debug.BuildInfo) string { return cmp.Or(release, info.Main.Version) }

// Revision returns the commit from which the program is built. It is empty if neither the linker nor the Go toolchain recorded it.
func Revision(info *debug.BuildInfo) string {
	if revision != "" {
		return revision
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return ""
}
