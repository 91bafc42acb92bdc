// Package userland turns the host's Debian packages into image layers: the C library that dynamically linked programs and dlopen need, and a shell.
package userland

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// LibcLabel is the label under which an image names the C library it holds.
const LibcLabel = "tessera.dev/libc"

const libcPackage = "libc6"

// Glibc is the C library of the host's distribution.
type Glibc struct {
	Files   []oci.File
	Version string // of the distribution's package
}

// HostGlibc reads the installed C library: its shared objects and its loader, at the paths where Debian has them. On other distributions it returns an error.
func HostGlibc(ctx context.Context) (Glibc, error) {
	version, err := dpkg(ctx, "--showformat=${Version}\n", "--show", libcPackage)
	if err != nil {
		return Glibc{}, err
	}
	listing, err := dpkg(ctx, "--listfiles", libcPackage)
	if err != nil {
		return Glibc{}, err
	}
	files := mergedFolders("lib", "lib64")
	for _, entry := range sharedObjects(listing) {
		file, err := hostFile(entry)
		if err != nil {
			return Glibc{}, fmt.Errorf("read the C library: %w", err)
		}
		files = append(files, file)
	}
	files = append(files,
		oci.File{Path: "/etc/ld.so.conf", Content: []byte("include /etc/ld.so.conf.d/*.conf\n")},
		oci.File{Path: "/etc/ld.so.conf.d/debian.conf", Content: []byte(searchPath(files))},
		oci.File{Path: "/usr/lib64/"},
	)
	return Glibc{Files: files, Version: version}, nil
}

// sharedObject matches the libraries of the package and its loader, not the plug-ins in folders below.
var sharedObject = regexp.MustCompile(`^(/usr)?/lib(64|/[^/]+-linux-gnu[^/]*)?/(lib[^/]+\.so[^/]*|ld-linux[^/]*\.so[^/]*)$`)

// sharedObjects picks them from a package's listing.
func sharedObjects(listing string) []string {
	var paths []string
	for line := range strings.Lines(listing) {
		if line = strings.TrimSpace(line); sharedObject.MatchString(line) {
			paths = append(paths, line)
		}
	}
	return paths
}

// hostFile takes over a file or link of the host, in the merged layout: /lib is a link to /usr/lib, and so on.
func hostFile(name string) (oci.File, error) {
	target := name
	if !strings.HasPrefix(name, "/usr/") {
		target = "/usr" + name
	}
	info, err := os.Lstat(name)
	if err != nil {
		return oci.File{}, err
	}
	if info.Mode()&os.ModeSymlink == 0 {
		return oci.File{Path: target, Source: name}, nil
	}
	link, err := os.Readlink(name)
	return oci.File{Path: target, Link: link}, err
}

// searchPath is the loader's configuration: every folder that holds libraries.
func searchPath(files []oci.File) string {
	var text strings.Builder
	seen := map[string]bool{}
	for _, file := range files {
		dir := path.Dir(file.Path)
		if strings.HasPrefix(path.Base(file.Path), "lib") && strings.Contains(file.Path, ".so") && !seen[dir] {
			seen[dir] = true
			fmt.Fprintln(&text, dir)
		}
	}
	return text.String()
}

// mergedFolders links top-level folders to their namesakes below /usr.
func mergedFolders(names ...string) []oci.File {
	var links []oci.File
	for _, name := range names {
		links = append(links, oci.File{Path: "/" + name, Link: "usr/" + name})
	}
	return links
}

func dpkg(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "dpkg-query", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("query dpkg for %s (images are built on Debian and Ubuntu): %w: %s", libcPackage, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(output)), nil
}
