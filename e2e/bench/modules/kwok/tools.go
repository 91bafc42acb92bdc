//go:build tools

// Package tools pins kwok, which simulates kubelets for the bench of the installer.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
