package userland

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// Busybox returns a shell and its tools from the host's static busybox: they need no C library. All lie in /usr/bin.
func Busybox(ctx context.Context) ([]oci.File, error) {
	program, err := findBusybox()
	if err != nil {
		return nil, err
	}
	output, err := exec.CommandContext(ctx, program, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tools of %s: %w", program, err)
	}
	files := append(Accounts(), oci.File{Path: "/usr/bin/busybox", Source: program})
	for _, tool := range strings.Fields(string(output)) {
		if tool != "busybox" {
			files = append(files, oci.File{Path: path.Join("/usr/bin", tool), Link: "busybox"})
		}
	}
	return files, nil
}

// Accounts returns the accounts and folders that programs expect in a root file system.
func Accounts() []oci.File {
	return append(mergedFolders("bin"),
		oci.File{Path: "/sbin", Link: "usr/bin"},
		oci.File{Path: "/usr/sbin", Link: "bin"},
		oci.File{Path: "/etc/passwd", Content: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		oci.File{Path: "/etc/group", Content: []byte("root:x:0:\nnogroup:x:65534:\n")},
		oci.File{Path: "/root/", Mode: 0o700},
		oci.File{Path: "/tmp/", Mode: 0o777},
	)
}

func findBusybox() (string, error) {
	for _, program := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		if _, err := os.Stat(program); !errors.Is(err, fs.ErrNotExist) {
			return program, err
		}
	}
	return "", errors.New("find busybox: install the package busybox-static")
}
