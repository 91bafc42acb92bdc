// Package expect holds examples to what they promise.
//
// An example is a manifest in deployments/examples. Its pods and jobs carry the annotation
// tessera.dev/expect, which says in a few words what must come of them. The demo, the suites and the
// documentation read the same annotation.
//
// Load reads manifests, a Watcher follows the cluster until a pod or job has settled and hands back
// what came of it, Compare holds that against the expectation. Compare is pure; each line it returns
// says what was expected and what is. Beyond what the annotation says it demands, of every container
// that ran the probe, that the container sees exactly the devices that the API server says it was given.
package expect
