// Package disk builds the disk of the lab's virtual machines into the cache, once per recipe: Debian 12 with its stock kernels, from Debian's archive.
package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// Folder is the folder of what the lab adds to a machine.
const Folder = "/opt/tessera-lab"

// BootScript is the path of the script that a machine runs at each boot, after it has unpacked its second disk.
const BootScript = Folder + "/boot.sh"

// Disk is the folder of a built disk. It does not change: machines write to layers above it.
type Disk string

// Build returns the disk, and builds it if it is not in the cache: about four minutes on two processors; see binaries.Once. It
// requires root.
func Build(ctx context.Context, cache string, progress io.Writer) (Disk, error) {
	source, err := binaries.Source()
	if err != nil {
		return "", err
	}
	script := filepath.Join(source, "e2e/env/lab/disk/build.sh")
	text, err := os.ReadFile(script)
	if err != nil {
		return "", fmt.Errorf("build the disk of virtual machines: %w", err)
	}
	key := sha256.Sum256(text)
	folder := filepath.Join(cache, "disk", hex.EncodeToString(key[:6]))
	err = binaries.Once(folder, "the disk of virtual machines, from Debian's archive", progress, func(unfinished string) error {
		output, err := exec.CommandContext(ctx, script, unfinished).CombinedOutput()
		if err != nil {
			return fmt.Errorf("build the disk of virtual machines: %w: %s", err, output[max(0, len(output)-2000):])
		}
		return nil
	})
	return Disk(folder), err
}

// Image is the path of the disk's file system: ext4, without partitions.
func (d Disk) Image() string { return filepath.Join(string(d), "root.ext4") }

// Kernels are the releases of the installed kernels, the one for clouds first: it boots fastest, and has no drivers of graphics cards.
func (d Disk) Kernels() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(string(d), "boot"))
	if err != nil {
		return nil, fmt.Errorf("find the kernels: %w", err)
	}
	var releases []string
	for _, entry := range entries {
		releases = append(releases, entry.Name())
	}
	slices.SortFunc(releases, func(a, b string) int { return len(b) - len(a) }) // 6.1.0-45-cloud-amd64 before 6.1.0-45-amd64
	return releases, nil
}

// Kernel returns the paths of a kernel and its initial RAM disk.
func (d Disk) Kernel(release string) (kernel, initrd string) {
	folder := filepath.Join(string(d), "boot", release)
	return filepath.Join(folder, "vmlinuz"), filepath.Join(folder, "initrd.img")
}

// Firmware returns the paths of UEFI, and of its variables with secure boot enabled and the keys of Microsoft.
func (d Disk) Firmware() (code, variables string) {
	folder := filepath.Join(string(d), "firmware")
	return filepath.Join(folder, "OVMF_CODE_4M.secboot.fd"), filepath.Join(folder, "OVMF_VARS_4M.ms.fd")
}

// Headers is the folder with the headers of the kernels, as their packages have them.
func (d Disk) Headers() string { return filepath.Join(string(d), "headers") }
