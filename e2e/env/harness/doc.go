// Package harness runs the real node agent without a cluster: the tessera-node binary on a host made
// of files with the fake GPU library, against a real API server, with the caller in kubelet's place.
//
// Nothing is simulated above the library: records, CDI specs, locks, sockets and ResourceSlices are
// those of a real node. e2e/tests/agent tests with it, e2e/bench measures with it; both need root, as the
// fake host has device nodes. What it starts dies with the process that started it.
package harness
