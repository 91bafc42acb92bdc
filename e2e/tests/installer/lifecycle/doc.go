// Package lifecycle holds the installer to what it does with nodes, from bare to Ready, through upgrades, faults and removal: the real
// installer with its own identity and rights against a real API server. Everybody else - controllers, kubelets, discoveries, agents - is
// played, so that each fault comes when it is wanted; with real nodes the same is told in e2e/tests/suite.
package lifecycle
