// Package netns creates network namespaces that are referenced by a file of the lab instead of a global name, and the
// links between them.
package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is the path of the file that references a network namespace. The zero value is the current namespace.
type Namespace string

// Make creates a new namespace with a reference at path.
func Make(path string) (Namespace, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("make network namespace: %w", err)
	}
	if err := file.Close(); err != nil {
		return "", fmt.Errorf("make network namespace: %w", err)
	}
	hold := func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	}
	if err := onOwnThread(hold); err != nil {
		return "", fmt.Errorf("make network namespace %s: %w", path, err)
	}
	return Namespace(path), nil
}

// Remove removes the reference: the namespace and its links end with its last process. An absent reference is not an
// error.
func (n Namespace) Remove() error {
	err := unix.Unmount(string(n), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // EINVAL: the file exists, nothing is mounted
		return fmt.Errorf("remove network namespace %s: %w", n, err)
	}
	if err := os.Remove(string(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace: %w", err)
	}
	return nil
}

// Do runs the function on a thread inside the namespace; processes it starts are inside as well.
func (n Namespace) Do(function func() error) error {
	if n == "" {
		return function()
	}
	file, err := os.Open(string(n))
	if err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	defer file.Close() //nolint:errcheck // opened for reading
	return onOwnThread(func() error {
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n, err)
		}
		return function()
	})
}

// IP runs ip(8) inside the namespace. command is split at blanks.
func (n Namespace) IP(ctx context.Context, command string) error {
	_, err := n.Output(ctx, command)
	return err
}

// Output runs ip(8) as IP does and returns its output.
func (n Namespace) Output(ctx context.Context, command string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	err := n.Do(func() error {
		cmd := exec.CommandContext(ctx, "ip", strings.Fields(command)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		return cmd.Run()
	})
	if err != nil {
		return nil, fmt.Errorf("ip %s: %w: %s", command, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// HasLink reports whether a link with the name exists.
func (n Namespace) HasLink(ctx context.Context, name string) (bool, error) {
	output, err := n.Output(ctx, "-json link show")
	if err != nil {
		return false, err
	}
	var links []struct {
		Name string `json:"ifname"`
	}
	if err := json.Unmarshal(output, &links); err != nil {
		return false, fmt.Errorf("list the links: %w", err)
	}
	for _, link := range links {
		if link.Name == name {
			return true, nil
		}
	}
	return false, nil
}

// onOwnThread runs the function on a thread that ends with it, so that no other goroutine runs in the thread's
// namespace.
func onOwnThread(function func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- function()
	}()
	return <-result
}
