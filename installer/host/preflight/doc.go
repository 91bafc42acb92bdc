// Package preflight looks at a host before a driver is installed, and says what would keep it from working. It changes nothing.
package preflight
