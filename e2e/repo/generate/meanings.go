package main

// attributeMeanings are the meanings of the attributes.
var attributeMeanings = map[string]string{
	"type":                            "the shape: `gpu` (whole), `mig`, `timeshare`, `mps`, `monitor`, `vfio`",
	"uuid":                            "UUID of the GPU",
	"parentUUID":                      "UUID of the GPU of the MIG device; the UUID of the MIG device itself exists after its creation and is in the claim's status",
	"productName":                     "product name of the GPU, cut to 64 bytes",
	"brand":                           "brand of the GPU",
	"architecture":                    "architecture of the GPU",
	"cudaComputeCapability":           "CUDA compute capability; 9.0 is written 9.0.0",
	"driverVersion":                   "version of the driver as a semantic version; 580.65.06 is written 580.65.6",
	"cudaDriverVersion":               "newest CUDA version that the driver supports",
	"profile":                         "name of the MIG profile",
	"migProfileID":                    "number of the MIG profile; names change with the driver, numbers do not",
	"migStart":                        "first memory slice of the placement",
	"index":                           "index of the GPU in nvidia-smi",
	"minor":                           "N in /dev/nvidiaN",
	"linkIsland":                      "number of the group of GPUs that are connected by NVLink; absent without NVLink, so that matchAttribute requires NVLink",
	"links":                           "relation to every GPU of the node by index, a letter each: `-` itself, `s` SYS, `n` NODE, `h` PHB, `x` PXB, `p` PIX, `1` to `9` and `A` to `I` for 1 to 18 NVLinks, `?` unknown",
	"clique":                          "clusterUUID.cliqueID of the NVLink fabric across nodes",
	"iommuGroup":                      "number of the IOMMU group, as in /dev/vfio",
	"memoryEnforced":                  "`hard` if the driver limits the memory of the containers to what the claim requests, otherwise `none` ([sharing.md](sharing.md#memory-of-shares))",
	"eccMode":                         "`Enabled` or `Disabled`; absent on a GPU without ECC",
	"resource.kubernetes.io/pciBusID": "PCI address",
	"resource.kubernetes.io/pcieRoot": "PCIe root complex; the same for close devices of all drivers",
	"resource.kubernetes.io/numaNode": "NUMA node; absent on platforms without NUMA",
}

// capacityMeanings are the meanings of the capacities.
var capacityMeanings = map[string]string{
	"memory":          "device memory in bytes",
	"multiprocessors": "streaming multiprocessors (SMs)",
	"copyEngines":     "copy engines",
	"decoders":        "video decoders",
	"encoders":        "video encoders",
	"jpegEngines":     "JPEG engines",
	"ofaEngines":      "optical flow engines",
	"shares":          "number of shares of the GPU; a claim gets one unless it requests more",
	"compute":         "percentage of the multiprocessors that the claim's clients may use; 0 is no limit and does not count toward the sum of 100",
}

const referenceHead = `# Reference

<!-- Written by go generate ./e2e/repo/generate. Change the sources it names instead. -->

Attributes and capacities of devices, parameters of claims and DeviceClasses, the configuration of nodes, and Events.

A name without a domain belongs to the driver's domain: in CEL, ` + "`device.attributes['gpu.tessera.dev'].productName`" + `; with the driver name
` + "`gpu.nvidia.com`" + `, that domain. Names and types are the same as those of NVIDIA's DRA driver where it has them.
`

const attributesHead = "Each entry has the type, an example, and the shapes whose devices have the attribute. `+` marks shapes that have it only with `attributes: Full` in\nthe NodeConfig, which is the default with the driver name `gpu.nvidia.com`.\n\n"

const capacitiesHead = "A claim requires a minimum with a CEL selector. On shared devices it requests a part with `capacity.requests`.\n\n"

const selectors = `## Selectors

| requirement | selector or constraint |
|---|---|
| a product | ` + "`device.attributes['gpu.tessera.dev'].productName.matches('H[12]00')`" + ` |
| at least 40 GiB | ` + "`device.capacity['gpu.tessera.dev'].memory.compareTo(quantity('40Gi')) >= 0`" + ` |
| Hopper or newer | ` + "`device.attributes['gpu.tessera.dev'].cudaComputeCapability.compareTo(semver('9.0.0')) >= 0`" + ` |
| a driver of 570 or newer | ` + "`device.attributes['gpu.tessera.dev'].driverVersion.compareTo(semver('570.0.0')) >= 0`" + ` |
| a MIG profile by number | ` + "`device.attributes['gpu.tessera.dev'].migProfileID == 19`" + ` |
| GPUs connected by NVLink | a constraint ` + "`matchAttribute: gpu.tessera.dev/linkIsland`" + ` |
| GPUs of one NUMA node | a constraint ` + "`matchAttribute: resource.kubernetes.io/numaNode`" + ` |
| MIG devices of one GPU | a constraint ` + "`matchAttribute: gpu.tessera.dev/parentUUID`" + ` |
| shares of different GPUs | a constraint ` + "`distinctAttribute: gpu.tessera.dev/uuid`" + ` |
| 10 GiB and a quarter of a GPU under MPS | class ` + "`mps.tessera.dev`, `capacity: {requests: {memory: 10Gi, compute: 25}}`" + ` |
`

const parametersHead = `Parameters are in ` + "`spec.devices.config[].opaque.parameters`" + ` of a claim, or in ` + "`spec.config[].opaque.parameters`" + ` of a DeviceClass, with the driver's name in
` + "`driver`" + `. Parameters of the claim take precedence over those of its class, later entries over earlier ones. An entry that names a request in ` + "`requests`" + `
must have the kind for the type of its device; an entry without requests applies to all devices of its kind.

An admission policy refuses invalid parameters when the object is written, and the agent refuses them with an Event. ` + "`tessera check -f FILE`" + ` validates them
before. For what each way of sharing enforces, see [sharing.md](sharing.md).
`

const nodeConfigHead = "It is the key `node.yaml` of the ConfigMap `tessera-node-config` (`apiVersion: tessera.dev/v1alpha1`, `kind: NodeConfig`). Unknown keys are refused.\nAgents read it when they start.\n\n"

const eventsHead = "The agent records them as Warnings on the claim and its pods, and as reason of the device's condition `Ready` in the claim's status.\n\n| reason | action |\n|---|---|\n"

const otherEvents = "| `PrepareFailed` | Any other cause: see the message and the agent's log. The agent retries. |\n" +
	"| `MemoryLimitChanged` | No Warning: `tessera shares resize` has changed what each container of the claim can allocate ([sharing.md](sharing.md#change-a-limit)). |\n" +
	"| `MemoryLimitFailed` | A container with shares did not start, because the driver could not limit its GPU memory ([sharing.md](sharing.md#memory-of-shares)); kubelet starts it again. |\n" +
	"| `TimeSliceNotApplied` | Another claim of the GPU set another interval first; the device's condition `TimeSliceApplied` has the current one. |\n" +
	"| `MPSDaemonRestarted` | The MPS daemon was restarted. CUDA programs that were connected have failed and must be restarted. |\n"
