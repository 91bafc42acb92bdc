// Package oracle compares Tessera's CDI specs with those of NVIDIA's own generator, nvcdi, on one fake
// machine: a container must be given the same device nodes and files by both. What differs on purpose
// is listed in the test with its reason; any other difference fails.
//
// It is a separate module, so that the toolkit and its dependencies are not in the product's.
package oracle
