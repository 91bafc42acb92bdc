// Package installation holds the suite of the installer: a lab of bare nodes becomes a GPU cluster through the chart, its driver is changed, and
// everything that a node can suffer meanwhile is done to it. What it proves is named by the acceptance cases of the installer, A1 to A25.
package installation
