// Package expect holds examples to what they promise.
//
// An example is a manifest in deployments/examples. Its pods, jobs and Deployments carry the annotation
// tessera.dev/expect, which says in a few words what must come of them; so does any object that the API
// server must refuse. The demo, the suites and the documentation read the same annotation.
//
// Load reads manifests. A Watcher runs one: it applies the objects, follows the cluster until each subject
// has settled and hands back what came of it. Compare holds that against the expectation. Compare is pure;
// each line it returns says what was expected and what is. Beyond what the annotation says it demands, of
// every container that lists its devices, with nvidia-smi -L or the probe, that these are exactly the devices
// that the API server says it was given, and, with the probe, that it can allocate no more than its share of a
// GPU under MPS.
package expect
