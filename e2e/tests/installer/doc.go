// Package installer holds the installer to a real API server without nodes: what it refuses, what it shows, what it keeps. The nodes' side is
// tested in e2e/tests/suite.
package installer
