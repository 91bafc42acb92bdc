// Package harness runs the real node agent without a cluster: the tessera-node binary on a file-based host with the
// fake GPU library, against a real API server. The caller takes the role of kubelet.
//
// Nothing is simulated above the library: records, CDI specs, locks, sockets and ResourceSlices are those of a real
// node. The tests in e2e/tests/agent and the benchmarks in e2e/bench use it. Both need root, since the fake host has
// device nodes. Started processes die with the process that started them.
package harness
