package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/klog/v2"
)

// removeStale removes the sockets of earlier agents of this driver that nobody listens on any more.
// An agent that was killed cannot remove its own, and kubelet keeps dialling what it finds.
func removeStale(ctx context.Context, driver, pluginDir, registryDir string) error {
	for _, pattern := range []string{
		filepath.Join(pluginDir, "dra*.sock"),
		filepath.Join(registryDir, driver+"-*reg.sock"),
	} {
		sockets, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("look for stale sockets: %w", err)
		}
		for _, socket := range sockets {
			if !refuses(ctx, socket) {
				continue
			}
			if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove stale socket: %w", err)
			}
			klog.FromContext(ctx).Info("Removed a socket that nobody listens on", "socket", socket)
		}
	}
	return nil
}

// refuses reports whether a connection to the socket is refused: its listener is gone.
func refuses(ctx context.Context, socket string) bool {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", socket)
	if err == nil {
		_ = connection.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
