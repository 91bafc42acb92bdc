package fakegpu

// The state file is these types, byte for byte: the C header that the engine is compiled with is
// generated from them (header.go), so the two cannot differ. Every field is naturally aligned and
// there is no padding. The version in the file is a hash of the generated header.

const (
	maxGPUs      = 16
	maxModels    = 8
	maxProfiles  = 18
	maxStarts    = 8
	maxCompute   = 6
	maxInstances = 15
	maxComputes  = 8
	maxNVLinks   = 18
	maxFaults    = 16
	maxEvents    = 4096
	maxProcesses = 32
	maxLimits    = 128
	cpuWords     = 8
)

// limit is an array length that the engine needs by name.
type limit struct {
	name  string
	value int
}

func limits() []limit {
	return []limit{
		{"MAX_GPUS", maxGPUs}, {"MAX_INSTANCES", maxInstances}, {"MAX_COMPUTES", maxComputes},
		{"MAX_NVLINKS", maxNVLinks}, {"MAX_FAULTS", maxFaults}, {"MAX_EVENTS", maxEvents}, {"CPU_WORDS", cpuWords},
		{"MAX_PROCESSES", maxProcesses}, {"MAX_LIMITS", maxLimits},
	}
}

// magic begins every state file.
var magic = text8{'F', 'A', 'K', 'E', 'G', 'P', 'U', 0}

type (
	text8  [8]byte
	text32 [32]byte
	text48 [48]byte
	text64 [64]byte
	text96 [96]byte
	// text256 is long enough for the path of a container's control group.
	text256 [256]byte
)

// stateFile is the whole file. A change is written to the copy of live that is not current, then made current by
// one atomic increment of Generation: a process that dies earlier has changed nothing.
type stateFile struct {
	Magic   text8
	Version uint64
	Size    uint64
	// Generation counts the changes; live[Generation % 2] is current.
	Generation uint32
	// EventCount counts the events ever appended; events[EventCount % maxEvents] is written next.
	// Waiters sleep on it.
	EventCount uint32
	Hardware   hardware
	Live       [2]live
	Events     [maxEvents]event
}

// hardware is constant after the file was created.
type hardware struct {
	GPUCount uint32
	// Majors of the device nodes.
	MajorGPU, MajorUVM, MajorCaps uint32
	GPUs                          [maxGPUs]gpuPart `c:"gpus"`
	Models                        [maxModels]modelPart
}

type gpuPart struct {
	Model, Minor        uint32
	Domain, Bus, Device uint32
	NUMA                int32
	Fabric, Clique      uint32
	Cluster             [16]uint8
	CPUs                [cpuWords]uint64 `c:"cpus"`
	// Levels are the nvmlGpuTopologyLevel_t towards every GPU.
	Levels [maxGPUs]uint32
	// NVLinks are the far ends; LinkCount of them are connected.
	LinkCount, ModuleID uint32
	NVLinks             [maxNVLinks]linkPart `c:"nvlinks"`
	UUID                text48
	Serial              text32
}

type linkPart struct {
	Kind, Domain, Bus, Device uint32
}

type modelPart struct {
	Product                             text96
	MemoryMIB, ReservedMIB              uint64
	Brand, Architecture                 uint32
	ComputeMajor, ComputeMinor          uint32
	Multiprocessors, Cores              uint32
	PCIDevice, PCISubsystem             uint32
	LinkMax, LinkVersion                uint32
	MemorySlices, ComputeSlices         uint32
	Copy, Decoder, Encoder, JPEG, OFA   uint32
	MaxMIG, MIGNeedsReset, ProfileCount uint32
	Profiles                            [maxProfiles]profilePart
}

type profilePart struct {
	Name                               text32
	MemoryMIB                          uint64
	Constant, ID, Slices, MaxInstances uint32
	Multiprocessors, Graphics          uint32
	Copy, Decoder, Encoder, JPEG, OFA  uint32
	Size, StartCount, ComputeCount     uint32
	Starts                             [maxStarts]uint32
	Compute                            [maxCompute]computePart
}

type computePart struct {
	Constant, ID, Slices, Multiprocessors uint32
	StartCount, Unused                    uint32
	Starts                                [maxStarts]uint32
}

// live is what changes.
type live struct {
	// Serial numbers the instances ever created.
	Serial uint64
	// Loads counts the loads of the driver; a session ends with the load that it began in.
	Loads, Loaded uint32
	CUDAVersion   uint32
	FaultCount    uint32
	// CreateMS and DestroyMS are how long creating and destroying a GPU instance takes.
	CreateMS, DestroyMS uint32
	// Stalls is set where every call waits meanwhile.
	Stalls uint32
	// MemoryLimits is how the driver limits the memory of control groups, a MemoryBackend.
	MemoryLimits uint32
	// IgnoresLimits is set where limits of memory that are set do not change anything.
	IgnoresLimits, Unused uint32
	DriverVersion         text32
	Faults                [maxFaults]fault
	GPUs                  [maxGPUs]gpuState `c:"gpus"`
	// Limits are those of control groups; an entry that is not Used is free.
	Limits [maxLimits]memoryLimit
}

// memoryLimit is what one control group may allocate on one GPU. The group is identified by the device and the inode of its folder, and by its path in the
// hierarchy, because a container without the hierarchy has only that.
type memoryLimit struct {
	Device, Inode, Soft, Hard uint64
	GPU                       uint32 `c:"gpu"`
	// Binds is unset where the group does not have the controller: the driver charges another one.
	Used, Binds, Unused uint32
	Path                text256
}

// fault delays a function, and makes Count calls of it fail; Count 0 never fails.
type fault struct {
	Function        text64
	Code, Count     uint32
	DelayMS, Unused uint32
}

type gpuState struct {
	MIG, PendingMIG                      uint32
	TimeSlice, ComputeMode, Persistence  uint32
	Lost, LinksDown                      uint32
	RemapCorrectable, RemapUncorrectable uint32
	RemapPending, RemapFailed            uint32
	ProcessCount                         uint32
	// RetirePending are pages that the next load of the driver retires; Resets counts the resets ever made.
	RetirePending, Resets uint32
	// FabricState is nvmlGpuFabricState_t, 0 where it was not set; FabricStatus and FabricHealth belong to it.
	FabricState, FabricStatus, FabricHealth uint32
	// Virtualization is nvmlGpuVirtualizationMode_t; MIGNeedsReset is set where it does on this machine, though not on all of the model.
	// RecoveryAction is nvmlDeviceGpuRecoveryAction_t.
	Virtualization, MIGNeedsReset, RecoveryAction uint32
	// LargerMemoryMIB and LargerMultiprocessors are what MIG profiles have more while MIG is off.
	LargerMemoryMIB, LargerMultiprocessors uint32
	// PinsMIG is set where MIG devices are not destroyed while another program has the GPU open.
	PinsMIG, Unused uint32
	// InheritedLimit is what a group without limits inherits from one that was removed; 0 is nothing.
	InheritedLimit uint64
	// ECCCorrected and ECCUncorrected count since the driver was loaded or the GPU reset, the lifetime counters
	// since delivery.
	ECCCorrected, ECCUncorrected                 uint64
	LifetimeECCCorrected, LifetimeECCUncorrected uint64
	Sensors                                      sensors
	// LinkErrors are the corrupted flow control digits that each NVLink has received.
	LinkErrors [maxNVLinks]uint64
	Processes  [maxProcesses]process
	Instances  [maxInstances]instance
}

// sensors are Readings in the layout of the file.
type sensors struct {
	EnergyMJ, ClockReasons         uint64
	GPUUse, MemoryUse              uint32 // percent
	EncoderUse, DecoderUse         uint32
	Celsius, MilliWatt             uint32
	ClockSM, ClockMemory           uint32 // MHz
	RetiredSingle, RetiredMultiple uint32
}

// process is one that computes on the GPU; Instance and Compute are NVML's, all bits set for none. Namespace is the inode of the PID namespace
// in which it has the PID.
type process struct {
	Bytes                             uint64
	PID, Instance, Compute, Namespace uint32
}

// instance is a GPU instance; its position in the array is its id.
type instance struct {
	Serial, ECCUncorrected     uint64
	Used, Profile, Start, Size uint32
	Computes                   [maxComputes]compute
}

// compute is a compute instance; its position in the array is its id.
type compute struct {
	Serial                     uint64
	Used, Profile, Start, Size uint32
	UUID                       [16]uint8
}

type event struct {
	Type, Data        uint64
	GPU, Unused       uint32
	Instance, Compute uint32
}
