// Package modules has the source of kernel modules with the names and the visible behavior of NVIDIA's, for machines with a kernel of their own: devices,
// files in /proc, versions, dependencies and use counts are the kernel's. The GPUs behind them are those of fakegpu.
package modules

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

//go:embed src
var sources embed.FS

// Write writes the source of the modules of spec.DriverVersion below root, where Debian's packages for DKMS have that of NVIDIA's. The files in /proc are those
// of the machine.
func Write(root string, spec fakegpu.Spec) error {
	folder := filepath.Join(root, "usr/src", "nvidia-current-"+spec.DriverVersion)
	files, err := fakegpu.DriverProc(spec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	generated := map[string]string{"files.h": header(files), "version.h": fmt.Sprintf("#define FAKE_VERSION %q\n", spec.DriverVersion)}
	for name, text := range generated {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	below, err := fs.Sub(sources, "src")
	if err != nil {
		return err
	}
	return os.CopyFS(folder, below)
}

// header lists the files as C, each after the folders above it.
func header(files map[string]string) string {
	var text strings.Builder
	text.WriteString("struct fake_file { const char *path, *text; };\nstatic const struct fake_file fake_files[] = {\n")
	made := map[string]bool{".": true, "driver": true} // the kernel has it
	var folder func(dir string)
	folder = func(dir string) {
		if made[dir] {
			return
		}
		folder(path.Dir(dir))
		made[dir] = true
		fmt.Fprintf(&text, "\t{ %q, NULL },\n", dir)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		folder(path.Dir(name))
		fmt.Fprintf(&text, "\t{ %q, %s },\n", name, literal(files[name]))
	}
	text.WriteString("};\n")
	return text.String()
}

// literal is a text as a C string, one line each.
func literal(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strconv.QuoteToASCII(line)) // without control characters but tab and line end, which C spells alike
	}
	return strings.Join(append(lines, `""`), "\n\t\t")
}
