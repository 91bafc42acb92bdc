// Package nvidia runs NVIDIA's unchanged entry points in the driver pods that the installer renders. It needs the folder of NVIDIA's files in the variable
// TESSERA_NVIDIA_FILES, and root; `make test-contract` runs it.
package nvidia
