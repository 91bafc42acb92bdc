package fakegpu

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// branch is a range of driver branches whose library lacks functions of the header.
type branch struct {
	// last is the last branch of the range, such as 535.
	last int
	// lacking are the functions.
	lacking []string
	// library is the file name of the compiled library.
	library string
}

// branches are in ascending order. Of 535 and older a library may lack everything that NVML's header of CUDA 12.0 does not have; the other list was read from
// libnvidia-ml.so.550.163.01.
func branches() []branch {
	return []branch{
		{535, strings.Fields(since120), "libnvidia-ml-535.so"},
		{550, strings.Fields(since550), "libnvidia-ml-550.so"},
	}
}

//go:embed engine/since-12.0.txt
var since120 string

//go:embed engine/since-550.txt
var since550 string

var declaration = regexp.MustCompile(`(?m)^(.*)DECLDIR\s+(char\s*\*\s*)?(nvml\w+)\s*\(`)

// symbolsOf returns the functions that an NVML header declares, in order and once each.
func symbolsOf(header string) []string {
	var names []string
	for _, match := range declaration.FindAllStringSubmatch(header, -1) {
		names = append(names, match[3])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// stubs returns C source with a weak definition of every function: one that the engine does not
// define exists and returns NVML_ERROR_NOT_SUPPORTED.
func stubs(names []string) string {
	var b strings.Builder
	b.WriteString("int stub(const char *function);\n")
	for _, name := range names {
		fmt.Fprintf(&b, "__attribute__((weak, visibility(\"default\"))) int %[1]s(void) { return stub(\"%[1]s\"); }\n", name)
	}
	return b.String()
}

// versionScript returns the linker script that hides the functions.
func versionScript(hidden []string) string {
	var b strings.Builder
	b.WriteString("{\n  global: nvml*; fakegpu*;\n  local:\n")
	for _, name := range hidden {
		fmt.Fprintf(&b, "    %s;\n", name)
	}
	b.WriteString("};\n")
	return b.String()
}

// branchOf returns the range to which a driver version, such as 535.183.06, belongs; false if its library lacks nothing.
func branchOf(version string) (branch, bool) {
	number := branchNumber(version)
	for _, b := range branches() {
		if number > 0 && number <= b.last {
			return b, true
		}
	}
	return branch{}, false
}
