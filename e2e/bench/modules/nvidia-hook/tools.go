//go:build tools

// Package nvidiahook pins the version of NVIDIA's CDI hooks that bench-hook builds and measures.
package nvidiahook

import _ "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook"
