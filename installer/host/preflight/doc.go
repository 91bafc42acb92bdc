// Package preflight checks a host before a driver is installed, and reports what prevents the installation. It changes nothing.
package preflight
