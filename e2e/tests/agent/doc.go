// Package agent tests the real node agent: the tessera-node binary on a host made of files with the
// fake GPU library, against a real API server, with this package in kubelet's place.
//
// It has no code besides its tests; what starts and asks the agent is package harness. Nothing is
// simulated above the library: records, CDI specs, locks, sockets and ResourceSlices are the ones of a
// real node, so the agent can be killed at any moment.
package agent
