//go:build !crashtest

package main

import (
	"github.com/tessera-gpu/tessera/dra-driver/health"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// seam returns the configuration unchanged. With the build tag crashtest, it adds hooks for tests of crash safety
// (seam_crashtest.go).
func seam(c prepare.Config) prepare.Config { return c }

// seamHealth returns the configuration of the health monitor unchanged.
func seamHealth(c health.Config) health.Config { return c }
