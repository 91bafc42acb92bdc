// Package host knows what a lab needs of the machine it runs on, and installs what is missing where it knows how.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Need is one thing a lab uses and the Debian package that brings it.
type Need struct {
	Package string
	Files   []string // any one of them is enough; a name without a slash is looked up in PATH
}

// Needs lists everything but Go itself.
func Needs() []Need {
	return []Need{
		{"runc", []string{"runc"}},
		{"containernetworking-plugins", cniPlugin("ptp")},
		{"iproute2", []string{"ip"}},
		{"iptables", []string{"iptables"}},
		{"nftables", []string{"nft"}},
		{"util-linux", []string{"nsenter"}},
		{"busybox-static", []string{"/bin/busybox", "/usr/bin/busybox"}},
		{"gcc", []string{"gcc"}},
		{"libc6-dev", []string{"/usr/include/stdio.h"}},
	}
}

// CNI returns the folder with the host's CNI plugins.
func CNI() (string, error) {
	for _, candidate := range cniPlugin("ptp") {
		if present(candidate) {
			return filepath.Dir(candidate), nil
		}
	}
	return "", fmt.Errorf("find the CNI plugins: none of %s", strings.Join(cniPlugin("ptp"), ", "))
}

func cniPlugin(name string) []string {
	var paths []string
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// Missing returns the packages of the needs that are not met.
func Missing() []string {
	var packages []string
	for _, need := range Needs() {
		if !need.met() {
			packages = append(packages, need.Package)
		}
	}
	return packages
}

func (n Need) met() bool {
	for _, file := range n.Files {
		if present(file) {
			return true
		}
	}
	return false
}

func present(file string) bool {
	if !strings.Contains(file, "/") {
		_, err := exec.LookPath(file)
		return err == nil || errors.Is(err, exec.ErrDot)
	}
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
