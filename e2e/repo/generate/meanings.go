package main

// attributeMeanings say what each attribute is.
var attributeMeanings = map[string]string{
	"type":                            "the shape: `gpu` (whole), `mig`, `timeshare`, `mps`, `monitor`, `vfio`",
	"uuid":                            "UUID of the GPU that the device stands for",
	"parentUUID":                      "UUID of the GPU that carries the MIG device; its own UUID exists from the moment it is carved and stands in the claim's status",
	"productName":                     "product name of the GPU, cut to 64 bytes",
	"brand":                           "brand of the GPU",
	"architecture":                    "architecture of the GPU",
	"cudaComputeCapability":           "CUDA compute capability; 9.0 is written 9.0.0",
	"driverVersion":                   "version of the driver as a semantic version; 580.65.06 is written 580.65.6",
	"cudaDriverVersion":               "newest CUDA version that the driver serves",
	"profile":                         "name of the MIG profile",
	"migProfileID":                    "number of the MIG profile; names change with the driver, numbers do not",
	"migStart":                        "first memory slice of the placement",
	"index":                           "index of the GPU in nvidia-smi",
	"minor":                           "N in /dev/nvidiaN",
	"linkIsland":                      "number of the group of GPUs that reach each other over NVLink; absent without NVLink, so that matchAttribute demands it",
	"links":                           "relation to every GPU of the node by index, a letter each: `-` itself, `s` SYS, `n` NODE, `h` PHB, `x` PXB, `p` PIX, `1` to `9` and `A` to `I` for 1 to 18 NVLinks, `?` unknown",
	"clique":                          "clusterUUID.cliqueID of the NVLink fabric across nodes",
	"iommuGroup":                      "number of the IOMMU group that the virtual machine gets, as in /dev/vfio",
	"eccMode":                         "`Enabled` or `Disabled`; absent on a GPU without ECC",
	"resource.kubernetes.io/pciBusID": "PCI address",
	"resource.kubernetes.io/pcieRoot": "PCIe root complex; equal for devices that are close, also of other drivers",
	"resource.kubernetes.io/numaNode": "NUMA node; absent where the platform has none",
}

// capacityMeanings say what each capacity is.
var capacityMeanings = map[string]string{
	"memory":          "device memory in bytes",
	"multiprocessors": "streaming multiprocessors (SMs)",
	"copyEngines":     "copy engines",
	"decoders":        "video decoders",
	"encoders":        "video encoders",
	"jpegEngines":     "JPEG engines",
	"ofaEngines":      "optical flow engines",
	"shares":          "how many claims share the GPU; a claim takes one unless it asks for more",
	"compute":         "percentage of the multiprocessors that the claim's clients may use; 0 is no limit and takes nothing of the 100",
}

const referenceHead = `# Reference

<!-- Written by go generate ./e2e/repo/generate. Change the sources it names instead. -->

What devices tell, what a claim may ask and set, and what a node's administrator decides. Names without a domain belong to the
driver: in CEL they are ` + "`device.attributes['gpu.tessera.dev'].productName`" + `; with the driver name ` + "`gpu.nvidia.com`" + ` that name stands instead.
Names and types are those of NVIDIA's DRA driver where it has them.
`

const attributesHead = "Where: the shapes whose devices have it; `+` marks those that have it only with `attributes: Full` in the NodeConfig, which is the default\nwith the driver name `gpu.nvidia.com`.\n\n| attribute | type | example | where | meaning |\n|---|---|---|---|---|\n"

const capacitiesHead = "A claim asks for at least so much with a CEL selector, and, on shared devices, for a part of it with `capacity.requests`.\n\n| capacity | type | example | where | meaning |\n|---|---|---|---|---|\n"

const selectors = `## Selectors

| to get | write |
|---|---|
| a product | ` + "`device.attributes['gpu.tessera.dev'].productName.matches('H[12]00')`" + ` |
| at least 40 GiB | ` + "`device.capacity['gpu.tessera.dev'].memory.compareTo(quantity('40Gi')) >= 0`" + ` |
| Hopper or newer | ` + "`device.attributes['gpu.tessera.dev'].cudaComputeCapability.compareTo(semver('9.0.0')) >= 0`" + ` |
| a driver of 570 or newer | ` + "`device.attributes['gpu.tessera.dev'].driverVersion.compareTo(semver('570.0.0')) >= 0`" + ` |
| a MIG profile, whatever the driver calls it | ` + "`device.attributes['gpu.tessera.dev'].migProfileID == 19`" + ` |
| GPUs joined by NVLink | a constraint ` + "`matchAttribute: gpu.tessera.dev/linkIsland`" + ` |
| GPUs of one NUMA node | a constraint ` + "`matchAttribute: resource.kubernetes.io/numaNode`" + ` |
| slices of one GPU | a constraint ` + "`matchAttribute: gpu.tessera.dev/parentUUID`" + ` |
| shares of different GPUs | a constraint ` + "`distinctAttribute: gpu.tessera.dev/uuid`" + ` |
| 10 GiB and a quarter of a GPU under MPS | class ` + "`mps.tessera.dev`, `capacity: {requests: {memory: 10Gi, compute: 25}}`" + ` |
`

const parametersHead = `Parameters stand in ` + "`spec.devices.config[].opaque.parameters`" + ` of a claim, or in ` + "`spec.config[].opaque.parameters`" + ` of a DeviceClass, with ` + "`driver`" + `
the driver's name. What the claim says goes before what its class says, a later entry before an earlier one. An entry whose ` + "`requests`" + ` names a
request must be for the type of its device; one that names none applies where its kind fits. An admission policy refuses what is wrong when it
is written, the agent refuses it again with an Event, and ` + "`tessera check -f FILE`" + ` tells before either. What each way of sharing enforces stands in
[sharing.md](sharing.md).
`

const nodeConfigHead = "The ConfigMap `tessera-node-config` holds it as `node.yaml` (`apiVersion: tessera.dev/v1alpha1`, `kind: NodeConfig`). Unknown keys are refused.\nAgents read it when they start.\n\n| field | meaning |\n|---|---|\n"

const eventsHead = "On the claim and on each of its pods, as Warnings from the agent, and as reason of the condition `Ready` of the device in the claim's status:\n\n| reason | what to do |\n|---|---|\n"

const otherEvents = "| `PrepareFailed` | Any other cause: the message and the agent's log tell. The agent tries again. |\n" +
	"| `TimeSliceNotApplied` | Another claim of the GPU wished another interval first; the condition `TimeSliceApplied` of the device says which is in effect. |\n" +
	"| `MPSDaemonRestarted` | The MPS daemon was started anew; CUDA programs that were connected have failed and must start again. |\n"
