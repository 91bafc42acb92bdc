// Package fakegpu lays a machine with NVIDIA GPUs under a folder: a driver root with libraries,
// nvidia-smi, firmware and device nodes, and the parts of /proc and /sys that belong to them. The
// GPUs are fake but strict: libnvidia-ml.so.1, libcuda.so.1 and nvidia-smi are C programs over one
// shared state file and refuse what hardware refuses, with NVML's error codes. Whoever speaks NVML
// through dlopen cannot tell the difference; see README.md for what is known to differ.
//
// The functions work on an installed folder while other processes use its GPUs. They are for one
// caller at a time per folder, except Inject, Reset and Read, which any number may call.
package fakegpu
