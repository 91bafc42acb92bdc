// Package namespacetest runs tests in namespaces of their own. Only tests import it.
package namespacetest

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// InMountNamespace runs the calling test again in a process with its own mount namespace and reports whether this is that process; in the other process
// it returns when that one has ended. Without root the test is skipped.
func InMountNamespace(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a mount namespace")
	}
	const marker = "TESSERA_TEST_IN_NAMESPACE"
	if os.Getenv(marker) == t.Name() {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), marker+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	t.Logf("in the namespace:\n%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}
