// Package suite tests the product in a lab with real kubelets, containerd and runc, and fake GPUs. `make test-lab` runs
// it. It requires root.
package suite
