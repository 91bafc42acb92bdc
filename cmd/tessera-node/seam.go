//go:build !crashtest

package main

import (
	"github.com/tessera-gpu/tessera/dra-driver/health"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// seam returns the configuration as it is. The program that is built for tests of crash safety, with
// the build tag crashtest, has another one.
func seam(c prepare.Config) prepare.Config { return c }

// seamHealth is the same for the monitor of the GPUs' health.
func seamHealth(c health.Config) health.Config { return c }
