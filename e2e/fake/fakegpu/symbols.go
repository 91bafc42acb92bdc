package fakegpu

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// newSymbols are the functions that NVML's header of CUDA 12.0 does not have. A driver of the 535
// branch may lack each of them.
//
//go:embed engine/since-12.0.txt
var newSymbols string

// oldDriver is the last driver branch whose library lacks the new symbols.
const oldDriver = 535

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

// versionScript returns the linker script that hides the new symbols.
func versionScript() string {
	var b strings.Builder
	b.WriteString("{\n  global: nvml*; fakegpu*;\n  local:\n")
	for _, name := range strings.Fields(newSymbols) {
		fmt.Fprintf(&b, "    %s;\n", name)
	}
	b.WriteString("};\n")
	return b.String()
}

// isOld reports whether a driver version, such as 535.183.06, belongs to a branch without the new
// symbols.
func isOld(version string) bool {
	branch, _, _ := strings.Cut(version, ".")
	number, err := strconv.Atoi(branch)
	return err == nil && number <= oldDriver
}
