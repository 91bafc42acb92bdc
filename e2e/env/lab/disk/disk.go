// Package disk builds the disk of the lab's virtual machines into the cache, once per recipe: Debian 12 with its stock kernels, from Debian's archive.
package disk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// Folder is the folder of what the lab adds to a machine.
const Folder = "/opt/tessera-lab"

// BootScript is the path of the script that a machine runs at each boot, after it has unpacked its second disk.
const BootScript = Folder + "/boot.sh"

// progressPause is the interval of progress messages during the build.
const progressPause = 15 * time.Second

// Disk is the folder of a built disk. It does not change: machines write to layers above it.
type Disk string

// Build returns the disk, and builds it if it is not in the cache: about four minutes on two processors. Builds in several processes are serialized by a
// lock. An interrupted build is not considered complete. It requires root.
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
	unlock, err := binaries.Lock(folder + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(folder); err == nil {
		return Disk(folder), nil
	}
	unfinished := folder + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	if err := os.Mkdir(unfinished, 0o755); err != nil {
		return "", err
	}
	if err := run(ctx, script, unfinished, progress); err != nil {
		return "", errors.Join(fmt.Errorf("build the disk of virtual machines: %w", err), os.RemoveAll(unfinished))
	}
	return Disk(folder), os.Rename(unfinished, folder)
}

// run runs the script in the folder and reports progress.
func run(ctx context.Context, script, folder string, progress io.Writer) error {
	began := time.Now()
	report := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) } //nolint:errcheck // progress is for the eye
	report("building the disk of virtual machines from Debian's archive, once")
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, script, folder)
	cmd.Stdout, cmd.Stderr = &output, &output
	done := make(chan error, 1)
	go func() { done <- cmd.Run() }()
	ticker := time.NewTicker(progressPause)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("%w: %s", err, output.Bytes()[max(0, output.Len()-2000):])
			}
			report("built the disk in %s", time.Since(began).Round(time.Second))
			return nil
		case <-ticker.C:
			report("building the disk: %s so far", time.Since(began).Round(time.Second))
		}
	}
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

// Headers is the folder with the headers of the kernels, as their packages have them.
func (d Disk) Headers() string { return filepath.Join(string(d), "headers") }
