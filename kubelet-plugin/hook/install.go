package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// Program is the name of the program that runs the hooks.
const Program = "tessera-hook"

// folderBytes is how many bytes of the hash of a program name its folder.
const folderBytes = 8

// Install copies the program at src into a folder of dir that is named after its content, and returns the program's
// path. The file is written atomically and never changed afterwards, so that specs of running containers stay valid
// while newer specs name a newer program. Every start of the agent calls it before any spec names the path; concurrent
// calls are safe. dir must be on a file system without noexec; files is its file system, nil the host's.
//
// The file is not synced: specs do not survive a reboot, and the next start replaces a file with other content.
func Install(files disk.FileSystem, src, dir string) (string, error) {
	content, err := os.ReadFile(src)
	if err != nil {
		return "", fmt.Errorf("install %s: %w", Program, err)
	}
	sum := sha256.Sum256(content)
	folder := filepath.Join(dir, hex.EncodeToString(sum[:folderBytes]))
	path := filepath.Join(folder, Program)
	if err := disk.MakeFolder(files, folder, 0o755); err != nil {
		return "", fmt.Errorf("install %s: %w", Program, err)
	}
	if err := errors.Join(runnable(folder), atomicfile.RemoveTemporary(files, filepath.Join(dir, "*", Program))); err != nil {
		return "", fmt.Errorf("install %s: %w", path, err)
	}
	if installed, err := os.ReadFile(path); err == nil && bytes.Equal(installed, content) {
		return path, nil
	}
	if err := atomicfile.Write(path, content, atomicfile.Options{Mode: 0o755, Volatile: true, Files: files}); err != nil {
		return "", fmt.Errorf("install %s: %w", path, err)
	}
	return path, nil
}

// RemoveUnused removes the programs in dir that Install has copied there, except those with the paths in used.
func RemoveUnused(files disk.FileSystem, dir string, used []string) error {
	folders, err := filepath.Glob(filepath.Join(dir, strings.Repeat("[0-9a-f]", 2*folderBytes)))
	if err != nil {
		return fmt.Errorf("list the programs in %s: %w", dir, err)
	}
	for _, folder := range folders {
		if !slices.Contains(used, filepath.Join(folder, Program)) {
			err = errors.Join(err, disk.RemoveAll(files, folder))
		}
	}
	if err != nil {
		return fmt.Errorf("remove former versions of %s: %w", Program, err)
	}
	return nil
}

// runnable returns an error for a folder on a file system that is mounted noexec.
func runnable(folder string) error {
	var system unix.Statfs_t
	if err := unix.Statfs(folder, &system); err != nil {
		return err
	}
	if system.Flags&unix.ST_NOEXEC != 0 {
		return errors.New("the file system is mounted noexec: choose another folder")
	}
	return nil
}
