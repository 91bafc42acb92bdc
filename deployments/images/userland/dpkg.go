package userland

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// debianPackage is an installed package of the host.
type debianPackage struct {
	name, architecture, version string
	source, sourceVersion       string
	maintainer, summary         string
	files                       []string
}

// readPackage reads an installed package.
func readPackage(ctx context.Context, name string) (debianPackage, error) {
	const format = "${Architecture}\n${Version}\n${source:Package}\n${source:Version}\n${Maintainer}\n${binary:Summary}\n"
	text, err := dpkg(ctx, name, "--showformat="+format, "--show")
	if err != nil {
		return debianPackage{}, err
	}
	fields := strings.Split(text, "\n")
	if len(fields) != 6 {
		return debianPackage{}, fmt.Errorf("query dpkg for %s: unexpected answer %q", name, text)
	}
	listing, err := dpkg(ctx, name, "--listfiles")
	if err != nil {
		return debianPackage{}, err
	}
	return debianPackage{
		name: name, architecture: fields[0], version: fields[1], source: fields[2], sourceVersion: fields[3], maintainer: fields[4], summary: fields[5],
		files: strings.Split(listing, "\n"),
	}, nil
}

// record returns the file in which scanners of images without dpkg find the package.
func (p debianPackage) record() oci.File {
	text := fmt.Sprintf("Package: %s\nStatus: install ok installed\nArchitecture: %s\nSource: %s (%s)\nVersion: %s\nMaintainer: %s\nDescription: %s\n",
		p.name, p.architecture, p.source, p.sourceVersion, p.version, p.maintainer, p.summary)
	return oci.File{Path: "/var/lib/dpkg/status.d/" + p.name, Content: []byte(text)}
}

// osRelease returns the file in which scanners find the distribution of the packages.
func osRelease() (oci.File, error) {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return oci.File{}, fmt.Errorf("read the distribution: %w", err)
	}
	return oci.File{Path: "/etc/os-release", Content: text}, nil
}

func dpkg(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "dpkg-query", append(args, name)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("query dpkg for %s (images are built on Debian and Ubuntu): %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(output)), nil
}
