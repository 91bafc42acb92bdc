// Package suite holds the tests of the product where it runs: in a lab with real kubelets, containerd
// and runc, and fake GPUs. `make test-lab` runs it; it needs root.
package suite
