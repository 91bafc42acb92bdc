// Package params reads the parameters that claims and DeviceClasses carry for Tessera's devices: the
// kinds GPUConfig and MIGConfig of gpu.tessera.dev/v1alpha1 and, with the driver name of NVIDIA's driver,
// that driver's GpuConfig and MigDeviceConfig. Many entries, of classes and of the claim, become the
// Settings of one device (Resolve).
//
// The input is written by anybody who may create a claim: decoding is strict, bounded in time, and never
// a panic. What a field may hold stands once, in Kinds: Decode checks by it, the admission policy and the
// reference in the documentation are generated from it. Only what the policy cannot see - repeated
// fields, and the shape of the device that a claim will get - is refused here alone.
package params
