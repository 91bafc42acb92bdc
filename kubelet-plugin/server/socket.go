package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// socketRetryDelay is the pause before a socket that refused a connection is tried again: a new socket of another agent refuses until it listens.
const socketRetryDelay = 100 * time.Millisecond

// removeStaleSockets removes sockets of earlier agents of this driver that have no listener. An agent that was killed cannot remove its sockets, and
// kubelet keeps connecting to them.
func removeStaleSockets(ctx context.Context, driver, pluginDir, registryDir string) error {
	var sockets []string
	for _, pattern := range []string{
		filepath.Join(pluginDir, "dra*.sock"),
		filepath.Join(registryDir, driver+"-*reg.sock"),
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("look for stale sockets: %w", err)
		}
		sockets = append(sockets, found...)
	}
	answers := func(socket string) bool { return !refusesConnections(ctx, socket) }
	if sockets = slices.DeleteFunc(sockets, answers); len(sockets) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(socketRetryDelay):
	}
	for _, socket := range slices.DeleteFunc(sockets, answers) {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove stale socket: %w", err)
		}
		klog.FromContext(ctx).Info("Removed a stale socket", "socket", socket)
	}
	return nil
}

// refusesConnections reports whether a connection to the socket is refused: its listener is gone.
func refusesConnections(ctx context.Context, socket string) bool {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", socket)
	if err == nil {
		_ = connection.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
