//go:build tools

// Package containerd17 pins the newest containerd that does not read CDI specs by default.
package containerd17

import (
	_ "github.com/containerd/containerd/cmd/containerd"
	_ "github.com/containerd/containerd/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/cmd/ctr"
)
