// Package agent tests the real node agent: the tessera-node binary on a file-based host with the fake GPU library,
// against a real API server. The tests take the role of kubelet.
//
// It has no code except its tests; package harness starts and calls the agent. Nothing is simulated above the library:
// records, CDI specs, locks, sockets and ResourceSlices are those of a real node, so that the agent can be killed at
// any moment.
package agent
