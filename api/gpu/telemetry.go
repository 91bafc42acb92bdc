package gpu

// Quantity is something that a GPU measures about itself; its value names it in messages. Values are
// in base units: ratios from 0 to 1, bytes, degrees Celsius, watts, joules, hertz, counts, and 1 or 0
// for what is or is not the case.
type Quantity string

// What changes with the work.
const (
	// Utilization is the part of the driver's last sample, of up to a second, in which a kernel ran,
	// MemoryUtilization the part in which device memory was read or written. A GPU carved into MIG
	// devices has neither, and its MIG devices have none of their own.
	Utilization       Quantity = "utilization"
	MemoryUtilization Quantity = "memory-utilization"
	// MemoryUsed is what is allocated on the device, without what the driver keeps for itself.
	MemoryUsed  Quantity = "memory-used"
	MemoryTotal Quantity = "memory-total"
	// Temperature is that of the GPU's core, MemoryTemperature that of its memory.
	Temperature       Quantity = "temperature"
	MemoryTemperature Quantity = "memory-temperature"
	// Power is the draw of the whole board, PowerLimit what it may be.
	Power      Quantity = "power"
	PowerLimit Quantity = "power-limit"
	// Energy is what the board used since the driver was loaded.
	Energy         Quantity = "energy"
	ProcessorClock Quantity = "processor-clock"
	MemoryClock    Quantity = "memory-clock"
	// What keeps the clocks below what the GPU could run at: somebody's setting, the power limit, the
	// other GPUs that it runs in step with, heat.
	LimitedBySetting Quantity = "limited-by-setting"
	LimitedByPower   Quantity = "limited-by-power"
	LimitedByPeers   Quantity = "limited-by-peers"
	LimitedByHeat    Quantity = "limited-by-heat"
	// The hardware's own brake halves the clocks or worse, for heat, on a signal of the power supply,
	// or for either.
	Braked         Quantity = "braked"
	BrakedByHeat   Quantity = "braked-by-heat"
	BrakedBySupply Quantity = "braked-by-supply"
)

// What tells about the hardware's health.
const (
	// CorrectedErrors and UncorrectedErrors are of memory, since the driver was loaded, on a GPU with
	// ECC. The lifetime's survive that.
	CorrectedErrors           Quantity = "corrected-errors"
	UncorrectedErrors         Quantity = "uncorrected-errors"
	LifetimeCorrectedErrors   Quantity = "lifetime-corrected-errors"
	LifetimeUncorrectedErrors Quantity = "lifetime-uncorrected-errors"
	// Rows of memory are remapped from Ampere on. A pending one takes effect with the next reset; after
	// a failed one the GPU must be replaced.
	RemappedCorrected   Quantity = "remapped-corrected"
	RemappedUncorrected Quantity = "remapped-uncorrected"
	RemapPending        Quantity = "remap-pending"
	RemapFailed         Quantity = "remap-failed"
	// Pages of memory are retired before Ampere, for several single-bit errors or one double-bit error.
	RetiredSingleBit Quantity = "retired-single-bit"
	RetiredDoubleBit Quantity = "retired-double-bit"
	RetirePending    Quantity = "retire-pending"
	PCIeReplays      Quantity = "pcie-replays"
	// The NVLink errors are summed over the GPU's links.
	LinkFlitErrors Quantity = "link-flit-errors"
	LinkDataErrors Quantity = "link-data-errors"
	LinkReplays    Quantity = "link-replays"
	LinkRecoveries Quantity = "link-recoveries"
)

// Telemetry is what one device measures at a moment. What it cannot measure is not in it.
type Telemetry map[Quantity]float64

// Measurement is the telemetry of one GPU and, by UUID, of its MIG devices.
type Measurement struct {
	GPU       Telemetry
	Instances map[string]Telemetry
}
