package ldso

import "strings"

// Line is one statement of ld.so.conf: a folder of libraries, or a pattern of files to include.
type Line struct {
	Folder  string
	Include string
}

// ParseConf returns the statements in order. Like ldconfig, it ignores comments, the obsolete hwcap statement and
// relative folders.
func ParseConf(text string) []Line {
	var lines []Line
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "hwcap":
		case fields[0] == "include":
			for _, pattern := range fields[1:] {
				lines = append(lines, Line{Include: pattern})
			}
		default:
			if folder, ok := parseFolder(line); ok {
				lines = append(lines, Line{Folder: folder})
			}
		}
	}
	return lines
}

// parseFolder removes the library type that old files have after a folder, and trailing slashes.
func parseFolder(line string) (string, bool) {
	folder, _, _ := strings.Cut(strings.TrimSpace(line), "=")
	folder = strings.TrimSpace(folder)
	if !strings.HasPrefix(folder, "/") {
		return "", false
	}
	if trimmed := strings.TrimRight(folder, "/"); trimmed != "" {
		return trimmed, true
	}
	return "/", true
}

// DefaultFolders returns the folders that glibc's linker searches by default.
func DefaultFolders() []string { return []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"} }

// MultiarchFolders returns the default folders of Debian and its derivatives, on every machine.
func MultiarchFolders() []string {
	return []string{
		"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
		"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
		"/lib", "/usr/lib",
	}
}

// IsLibraryName reports whether ldconfig would read a file with this name.
func IsLibraryName(name string) bool {
	library := strings.HasPrefix(name, "lib") || strings.HasPrefix(name, "ld-") || strings.HasPrefix(name, "ld.so.") || strings.HasPrefix(name, "ld64.so.")
	return library && strings.Contains(name, ".so") && Plain(name)
}
