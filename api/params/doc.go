// Package params reads the opaque parameters of claims and DeviceClasses: the kinds GPUConfig and MIGConfig of
// gpu.tessera.dev/v1alpha1 and, with the driver name of NVIDIA's driver, that driver's GpuConfig and MigDeviceConfig. Resolve
// combines the entries of classes and of the claim into the Settings of one device.
//
// The input is written by any user who may create a claim. Decoding is therefore strict, bounded in time, and never panics.
//
// Kinds is the only definition of what a field may have. Decode validates with it; the admission policy and the reference in
// the documentation are generated from it. Only what the policy cannot evaluate is rejected here alone: repeated fields, and
// parameters that do not fit the shape of the allocated device.
//
// All functions are pure and safe for concurrent use. Source: KEP-4381, DeviceConfiguration.
package params
