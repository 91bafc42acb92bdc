package dist

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tessera-gpu/tessera/deployments/images/bundle"
)

// platform is an operating system and an architecture in Go's words.
type platform struct{ system, architecture string }

// platforms are those of the CLI.
var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// program returns the file name of the CLI.
func (p platform) program() string {
	if p.system == "windows" {
		return "tessera.exe"
	}
	return "tessera"
}

// cliArchive is a file of the release with the CLI.
type cliArchive struct {
	platform
	file string
}

// writeCLI writes an archive with the CLI for each platform.
func (r *release) writeCLI(ctx context.Context) ([]cliArchive, error) {
	license, err := os.ReadFile(filepath.Join(r.Source, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("write the CLI: %w", err)
	}
	var archives []cliArchive
	for _, p := range platforms {
		program := filepath.Join(r.folder, p.system+"-"+p.architecture, p.program())
		if err := r.target(p).Compile(ctx, r.Source, "./cmd/tessera", program); err != nil {
			return nil, err
		}
		content, err := os.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("write the CLI: %w", err)
		}
		files := []entry{{name: "LICENSE", content: license}, {name: p.program(), content: content, executable: true}}
		name, archive := r.name("tessera", p)+".tar.gz", tarGz
		if p.system == "windows" {
			name, archive = r.name("tessera", p)+".zip", zipped
		}
		packed, err := archive(files, r.time)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		if err := r.write(name, packed); err != nil {
			return nil, err
		}
		if err := r.writeSBOM(ctx, program, r.name("tessera", p)); err != nil {
			return nil, err
		}
		archives = append(archives, cliArchive{p, name})
	}
	return archives, nil
}

// target returns what the programs for a platform are compiled for.
func (r *release) target(p platform) bundle.Target {
	return bundle.Target{OS: p.system, Architecture: p.architecture, Version: r.Version, Revision: r.revision}
}

// name returns the name of a file with a program for a platform, without its extension.
func (r *release) name(program string, p platform) string {
	return fmt.Sprintf("%s_%s_%s_%s", program, r.Version, p.system, p.architecture)
}

// writeSBOM writes the list of the Go modules in a program, in the format of CycloneDX.
func (r *release) writeSBOM(ctx context.Context, program, name string) error {
	file := name + ".cdx.json"
	_, err := output(exec.CommandContext(ctx, r.SBOM, "bin", "-json", "-std", "-noserial", "-notimestamp", "-version", r.Version, "-output", filepath.Join(r.Out, file), program))
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	r.report(file)
	return nil
}
