// Package installation is the test suite of the installer: a lab of bare nodes becomes a GPU cluster through the chart,
// its driver is upgraded, and nodes fail, reboot and leave during that. The specs are named after the acceptance cases
// A1 to A25, which docs/dev/testing.md defines.
package installation
