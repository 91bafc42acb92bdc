//go:build tools

// Package kueue pins the version of Kueue that the test of its quotas builds and runs.
package kueue

import _ "sigs.k8s.io/kueue/cmd/kueue"
