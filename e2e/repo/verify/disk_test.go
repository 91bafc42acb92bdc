package verify

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// withoutPort are the files of the node's programs that change files without the port internal/host/disk, with the reason.
var withoutPort = map[string]string{
	"internal/host/disk/filesystem.go":         "the port",
	"kubelet-plugin/devnode/devnode.go":        "device nodes in /dev",
	"kubelet-plugin/hook/root.go":              "a container's root, on descriptors",
	"kubelet-plugin/vfio/sys.go":               "sysfs",
	"kubelet-plugin/server/socket.go":          "sockets",
	"kubelet-plugin/server/server.go":          "sockets",
	"kubelet-plugin/mps/control.go":            "the folder of a daemon, in memory, made again at each of its starts",
	"kubelet-plugin/mps/legacy.go":             "the folder of a daemon, in memory",
	"kubelet-plugin/mps/named.go":              "the sockets of claims, in memory",
	"kubelet-plugin/mps/supervisor.go":         "the lock and the logs of a daemon, in memory",
	"kubelet-plugin/mps/volume.go":             "the mode of a volume in memory",
	"installer/host/unload/execute.go":         "sysfs",
	"installer/host/result.go":                 "the termination message of the container",
	"cmd/tessera-node/daemonlinks.go":          "links in the /run of the container",
	"cmd/tessera-node/endpoint.go":             "a socket",
	"cmd/tessera-node/seam_crashtest.go":       "a test's build",
	"internal/host/disk/disktest/disk.go":      "a test's file system",
	"internal/host/disk/disktest/powerloss.go": "a test's file system",
}

// TestNodeWritesThroughPort lists the calls that change files of the host without the port, which no test can make fail.
func TestNodeWritesThroughPort(t *testing.T) {
	changes := []string{
		"OpenFile", "Create", "CreateTemp", "WriteFile", "Mkdir", "MkdirAll", "MkdirTemp", "Rename", "Remove", "RemoveAll", "Symlink", "Link", "Truncate",
		"Chmod", "Chown", "Lchown", "Chtimes", "OpenRoot", "OpenInRoot",
	}
	used := map[string]bool{}
	for _, folder := range []string{"internal/host", "kubelet-plugin", "installer/host", "cmd/tessera-node"} {
		err := filepath.WalkDir(filepath.Join("../../..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name := filepath.ToSlash(strings.TrimPrefix(path, "../../../"))
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, is := n.(*ast.SelectorExpr)
				if !is || !slices.Contains(changes, call.Sel.Name) {
					return true
				}
				if of, is := call.X.(*ast.Ident); is && of.Name == "os" {
					used[name] = true
					if withoutPort[name] == "" {
						t.Errorf("%s calls os.%s: use internal/host/disk or internal/host/atomicfile, so that tests inject faults", name, call.Sel.Name)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range withoutPort {
		if !used[name] {
			t.Errorf("%s changes no files without the port: remove it from the list", name)
		}
	}
}
