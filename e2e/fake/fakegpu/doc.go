// Package fakegpu installs a machine with NVIDIA GPUs under a folder: a driver root with libraries,
// nvidia-smi, firmware and device nodes, and the related parts of /proc and /sys. The GPUs are fake
// but strict: libnvidia-ml.so.1, libcuda.so.1 and nvidia-smi are C programs over one shared state
// file and refuse what hardware refuses, with NVML's error codes. A program that uses NVML through
// dlopen sees no difference from hardware, except for what README.md lists.
//
// The functions work on an installed folder while other processes use its GPUs. At most one caller
// at a time may use them per folder, except Inject, Reset and Read, which are safe for concurrent
// use.
package fakegpu
