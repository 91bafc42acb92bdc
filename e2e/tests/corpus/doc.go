// Package corpus contains parameters as users write them, with the verdict on each. One test runs them
// through the code that the node agent and `tessera check` share, another through the admission policy
// in a real API server: both must have the same result, or the case contains the reason why the policy
// cannot.
package corpus
