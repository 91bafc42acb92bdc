// Package userland turns the host's Debian packages into image layers: the C library that dynamically linked programs and dlopen need, and a shell.
package userland

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// LibcLabel is the label under which an image names the C library it holds.
const LibcLabel = "tessera.dev/libc"

// Library is a C library of Debian or Ubuntu.
type Library struct {
	Files   []oci.File
	Version string // of the distribution's package libc6
}

// platform is where Debian has the C library of an architecture.
type platform struct{ triplet, loader string }

var platforms = map[string]platform{
	"amd64": {"x86_64-linux-gnu", "/usr/lib64/ld-linux-x86-64.so.2"},
	"arm64": {"aarch64-linux-gnu", "/usr/lib/ld-linux-aarch64.so.1"},
}

// Glibc reads the C library of an architecture, in Go's words: its shared objects and its loader, at the paths where Debian has them, and the record of its
// package. That of another architecture than this machine's is in a package for cross compilers, such as libc6-arm64-cross. On other distributions
// than Debian and Ubuntu it returns an error.
func Glibc(ctx context.Context, architecture string) (Library, error) {
	libc, cross := "libc6", architecture != runtime.GOARCH
	if cross {
		libc += "-" + architecture + "-cross"
	}
	read, err := readPackage(ctx, libc)
	if err != nil {
		return Library{}, err
	}
	var objects []oci.File
	if cross {
		objects, err = crossObjects(read.files, architecture)
		read.name, read.architecture, read.source = "libc6", architecture, "glibc"
		read.version = crossSuffix.ReplaceAllString(read.version, "")
		read.sourceVersion = read.version
	} else {
		objects, err = hostObjects(read.files)
	}
	if err != nil {
		return Library{}, fmt.Errorf("read the C library: %w", err)
	}
	release, err := osRelease()
	if err != nil {
		return Library{}, err
	}
	files := append(mergedFolders("lib", "lib64"), objects...)
	files = append(files,
		oci.File{Path: "/etc/ld.so.conf", Content: []byte("include /etc/ld.so.conf.d/*.conf\n")},
		oci.File{Path: "/etc/ld.so.conf.d/debian.conf", Content: []byte(searchPath(files))},
		oci.File{Path: "/usr/lib64/"},
		release, read.record(),
	)
	return Library{Files: files, Version: read.version}, nil
}

// crossSuffix is what packages for cross compilers append to the version of the C library.
var crossSuffix = regexp.MustCompile(`cross[0-9.]+$`)

// hostObjects returns the files of this machine's C library.
func hostObjects(listing []string) ([]oci.File, error) {
	var files []oci.File
	for _, entry := range sharedObjects(listing) {
		file, err := hostFile(entry)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// crossObjects returns the files of a C library for cross compilers, which are in a folder of the architecture, at their paths on such a machine.
func crossObjects(listing []string, architecture string) ([]oci.File, error) {
	at, ok := platforms[architecture]
	if !ok {
		return nil, fmt.Errorf("no C library for the architecture %s", architecture)
	}
	var files []oci.File
	for _, entry := range listing {
		name, found := strings.CutPrefix(entry, "/usr/"+at.triplet+"/lib/")
		target := "/usr/lib/" + at.triplet + "/" + name
		if !found || !sharedObject.MatchString(target) {
			continue
		}
		file, err := hostFile(entry)
		if err != nil {
			return nil, err
		}
		file.Path = target
		files = append(files, file)
	}
	object := "/usr/lib/" + at.triplet + "/" + path.Base(at.loader)
	link, err := filepath.Rel(path.Dir(at.loader), object)
	return append(files, oci.File{Path: at.loader, Link: link}), err
}

// sharedObject matches the libraries of the package and its loader, not the plug-ins in folders below.
var sharedObject = regexp.MustCompile(`^(/usr)?/lib(64|/[^/]+-linux-gnu[^/]*)?/(lib[^/]+\.so[^/]*|ld-linux[^/]*\.so[^/]*)$`)

// sharedObjects picks them from a package's listing.
func sharedObjects(listing []string) []string {
	var paths []string
	for _, line := range listing {
		if sharedObject.MatchString(line) {
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
