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

// socketRetryDelay is how long after the first refusal a socket is tried again: one that another agent has
// just made refuses until it listens.
const socketRetryDelay = 100 * time.Millisecond

// removeStaleSockets removes the sockets of earlier agents of this driver that nobody listens on any more.
// An agent that was killed cannot remove its own, and kubelet keeps dialling what it finds.
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
