package gpu

// Quantity is something that a GPU measures about itself. Its value is its name in messages. Measurements are in base units:
// ratios from 0 to 1, bytes, degrees Celsius, watts, joules, hertz, counts, and 1 or 0 for true or false.
type Quantity string

// Quantities that depend on the work.
const (
	// Utilization is the part of the driver's last sample period, which is at most one second, in which a kernel ran.
	// MemoryUtilization is the part in which device memory was read or written. GPUs in MIG mode and MIG devices report
	// neither. Source: nvmlDeviceGetUtilizationRates.
	Utilization       Quantity = "utilization"
	MemoryUtilization Quantity = "memory-utilization"
	// MemoryUsed is the memory allocated on the device, without the memory reserved by the driver.
	MemoryUsed  Quantity = "memory-used"
	MemoryTotal Quantity = "memory-total"
	// Temperature is that of the GPU core, MemoryTemperature that of the memory.
	Temperature       Quantity = "temperature"
	MemoryTemperature Quantity = "memory-temperature"
	// Power is the draw of the whole board, PowerLimit the enforced limit.
	Power      Quantity = "power"
	PowerLimit Quantity = "power-limit"
	// Energy is the consumption of the board since the driver was loaded.
	Energy         Quantity = "energy"
	ProcessorClock Quantity = "processor-clock"
	MemoryClock    Quantity = "memory-clock"
	// The reasons why clocks are below their maximum: application clocks that were set, the power limit, synchronization with
	// other GPUs, temperature. Source: nvmlDeviceGetCurrentClocksEventReasons.
	LimitedBySetting Quantity = "limited-by-setting"
	LimitedByPower   Quantity = "limited-by-power"
	LimitedByPeers   Quantity = "limited-by-peers"
	LimitedByHeat    Quantity = "limited-by-heat"
	// The hardware slowdown halves the clocks or reduces them further: because of the temperature, of a signal of the power
	// supply, or of either.
	Braked         Quantity = "braked"
	BrakedByHeat   Quantity = "braked-by-heat"
	BrakedBySupply Quantity = "braked-by-supply"
)

// Quantities that depend on the health of the hardware.
const (
	// CorrectedErrors and UncorrectedErrors are memory errors since the driver was loaded, on GPUs with ECC. The lifetime
	// counts are kept when the driver is loaded again.
	CorrectedErrors           Quantity = "corrected-errors"
	UncorrectedErrors         Quantity = "uncorrected-errors"
	LifetimeCorrectedErrors   Quantity = "lifetime-corrected-errors"
	LifetimeUncorrectedErrors Quantity = "lifetime-uncorrected-errors"
	// Rows of memory are remapped from Ampere on. A pending remapping takes effect with the next reset. After a failed one the
	// GPU must be replaced.
	RemappedCorrected   Quantity = "remapped-corrected"
	RemappedUncorrected Quantity = "remapped-uncorrected"
	RemapPending        Quantity = "remap-pending"
	RemapFailed         Quantity = "remap-failed"
	// Pages of memory are retired before Ampere, after several single-bit errors or one double-bit error.
	RetiredSingleBit Quantity = "retired-single-bit"
	RetiredDoubleBit Quantity = "retired-double-bit"
	RetirePending    Quantity = "retire-pending"
	PCIeReplays      Quantity = "pcie-replays"
	// NVLink errors are summed over all links of the GPU.
	LinkFlitErrors Quantity = "link-flit-errors"
	LinkDataErrors Quantity = "link-data-errors"
	LinkReplays    Quantity = "link-replays"
	LinkRecoveries Quantity = "link-recoveries"
)

// Telemetry has the measurements of one device at one time. A quantity that the device cannot measure is absent.
type Telemetry map[Quantity]float64

// Measurement is the telemetry of one GPU, and of its MIG devices by UUID.
type Measurement struct {
	GPU       Telemetry
	Instances map[string]Telemetry
}
