// Package lifecycle tests the installer's work on nodes, from bare to Ready, through upgrades, faults and removal: the real installer
// with its own identity and permissions against a real API server. All other components - controllers, kubelets, discoveries, agents -
// are simulated, so that each fault occurs at a chosen moment; e2e/tests/suite tests the same with real nodes.
package lifecycle
