// Package bootid reads the kernel's ID of the current boot.
package bootid

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Read returns the random ID that the kernel drew at boot, from the procfs mounted at proc. kubelet reports the same in the node's
// status.nodeInfo.bootID.
func Read(proc string) (string, error) {
	text, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
