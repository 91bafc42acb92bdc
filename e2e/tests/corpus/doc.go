// Package corpus holds parameters as people write them, with the verdict on each. One test runs them
// through the code that the node agent and `tessera check` share, another through the admission policy
// in a real API server: both must come to the same verdict, or the case says why the policy cannot.
package corpus
