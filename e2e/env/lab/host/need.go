// Package host checks the requirements of a lab on the host, and installs missing packages on supported distributions.
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

// Need is one requirement of a lab and the Debian package that provides it.
type Need struct {
	Package string
	Files   []string // one of them suffices; a name without a slash is searched in PATH
}

// Needs lists all requirements except Go.
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

// VirtualNeeds lists the additional requirements of virtual machines.
func VirtualNeeds() []Need {
	return []Need{
		{"qemu-system-x86", []string{"qemu-system-x86_64"}},
		{"qemu-utils", []string{"qemu-img"}},
		{"mmdebstrap", []string{"mmdebstrap"}},
		{"debian-archive-keyring", []string{"/usr/share/keyrings/debian-archive-keyring.gpg"}},
		{"patchelf", []string{"patchelf"}},
		{"e2fsprogs", []string{"mkfs.ext4", "/usr/sbin/mkfs.ext4"}},
		{"openssh-client", []string{"ssh"}},
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

// Missing returns the packages of the requirements that are not met.
func Missing(needs []Need) []string {
	var packages []string
	for _, need := range needs {
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
