package exporter

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// series describes the series of a quantity.
type series struct {
	quantity gpu.Quantity
	// name follows tessera_gpu_ or, for MIG devices, tessera_mig_device_.
	name, help string
	kind       prometheus.ValueType
	// label and value distinguish the series with one name; both are empty if there is only one.
	label, value string
}

// table returns the series of every quantity.
func table() []series {
	const (
		gauge   = prometheus.GaugeValue
		counter = prometheus.CounterValue

		compute   = "Ratio of the driver's last sample period, at most one second, in which a kernel ran. Absent while the GPU is partitioned into MIG devices."
		memory    = "Ratio of the driver's last sample period in which device memory was read or written. Absent while the GPU is partitioned into MIG devices."
		limited   = "1 while the clocks are limited for the reason, 0 otherwise."
		recent    = "ECC memory errors since the driver was loaded."
		lifetime  = "ECC memory errors in the GPU's lifetime."
		remapped  = "Remapped memory rows, by severity of the errors."
		retired   = "Retired memory pages, by cause. GPUs before Ampere only."
		link      = "NVLink errors of the GPU since the driver was loaded."
		frequency = "Current clock frequency, in hertz."
	)
	return []series{
		{gpu.Utilization, "utilization_ratio", compute, gauge, "", ""},
		{gpu.MemoryUtilization, "memory_utilization_ratio", memory, gauge, "", ""},
		{gpu.MemoryUsed, "memory_used_bytes", "Allocated device memory, excluding memory reserved by the driver, in bytes.", gauge, "", ""},
		{gpu.MemoryTotal, "memory_total_bytes", "Total device memory, in bytes.", gauge, "", ""},
		{gpu.Temperature, "temperature_celsius", "Temperature of the GPU's core, in degrees Celsius.", gauge, "", ""},
		{gpu.MemoryTemperature, "memory_temperature_celsius", "Temperature of the device memory, in degrees Celsius.", gauge, "", ""},
		{gpu.Power, "power_watts", "Power draw of the board, in watts.", gauge, "", ""},
		{gpu.PowerLimit, "power_limit_watts", "Power limit of the board, in watts.", gauge, "", ""},
		{gpu.Energy, "energy_joules_total", "Energy used by the board since the driver was loaded, in joules.", counter, "", ""},
		{gpu.ProcessorClock, "clock_hertz", frequency, gauge, "clock", "sm"},
		{gpu.MemoryClock, "clock_hertz", frequency, gauge, "clock", "memory"},

		{gpu.LimitedBySetting, "clocks_limited", limited, gauge, "reason", "setting"},
		{gpu.LimitedByPower, "clocks_limited", limited, gauge, "reason", "power_cap"},
		{gpu.LimitedByPeers, "clocks_limited", limited, gauge, "reason", "sync_boost"},
		{gpu.LimitedByHeat, "clocks_limited", limited, gauge, "reason", "thermal"},
		{gpu.Braked, "clocks_limited", limited, gauge, "reason", "hardware_slowdown"},
		{gpu.BrakedByHeat, "clocks_limited", limited, gauge, "reason", "hardware_thermal"},
		{gpu.BrakedBySupply, "clocks_limited", limited, gauge, "reason", "hardware_power_brake"},

		{gpu.CorrectedErrors, "ecc_errors_total", recent, counter, "severity", "corrected"},
		{gpu.UncorrectedErrors, "ecc_errors_total", recent, counter, "severity", "uncorrected"},
		{gpu.LifetimeCorrectedErrors, "ecc_errors_lifetime_total", lifetime, counter, "severity", "corrected"},
		{gpu.LifetimeUncorrectedErrors, "ecc_errors_lifetime_total", lifetime, counter, "severity", "uncorrected"},
		{gpu.RemappedCorrected, "remapped_rows_total", remapped, counter, "severity", "corrected"},
		{gpu.RemappedUncorrected, "remapped_rows_total", remapped, counter, "severity", "uncorrected"},
		{gpu.RemapPending, "row_remap_pending", "1 if the next reset will remap a memory row, 0 otherwise.", gauge, "", ""},
		{gpu.RemapFailed, "row_remap_failed", "1 if a memory row could not be remapped, 0 otherwise. Replace the GPU if 1.", gauge, "", ""},
		{gpu.RetiredSingleBit, "retired_pages_total", retired, counter, "cause", "single_bit"},
		{gpu.RetiredDoubleBit, "retired_pages_total", retired, counter, "cause", "double_bit"},
		{gpu.RetirePending, "page_retirement_pending", "1 if the next reset will retire a memory page, 0 otherwise. GPUs before Ampere only.", gauge, "", ""},
		{gpu.PCIeReplays, "pcie_replays_total", "PCIe packets retransmitted since the driver was loaded.", counter, "", ""},
		{gpu.LinkFlitErrors, "nvlink_errors_total", link, counter, "kind", "crc_flit"},
		{gpu.LinkDataErrors, "nvlink_errors_total", link, counter, "kind", "crc_data"},
		{gpu.LinkReplays, "nvlink_errors_total", link, counter, "kind", "replay"},
		{gpu.LinkRecoveries, "nvlink_errors_total", link, counter, "kind", "recovery"},
	}
}

// inventoryDescs has the descriptions of the series that do not come from the hardware.
type inventoryDescs struct {
	info, up, held, health, claims, slices, room, promised, pod, mappingAge, limit, used, refused *prometheus.Desc
}

// describer creates descriptions with the node's name.
type describer struct{ node string }

func (d describer) of(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tessera_"+name, help, labels, prometheus.Labels{"node": d.node})
}

func (d describer) inventoryDescs() inventoryDescs {
	container := []string{"gpu", "uuid", "product", "namespace", "pod", "container", "claim"}
	return inventoryDescs{
		limit: d.of("container_memory_limit_bytes", "Device memory that the driver lets the container allocate of the GPU, in bytes. Absent without a limit.", container...),
		used:  d.of("container_memory_used_bytes", "Device memory that the container has allocated of the GPU, as the driver counts it for the limit, in bytes.", container...),
		refused: d.of("container_memory_refused_total", "Allocations of device memory that the container's limit refused. Absent where the kernel does not count them.",
			container...),
		info: d.of("gpu_info", "GPU of the node and its driver, always 1.", "gpu", "uuid", "product", "architecture", "driver_version", "cuda_version"),
		up:   d.of("gpu_up", "1 if the GPU responded to the last read, 0 otherwise.", "gpu", "uuid", "product"),
		held: d.of("gpu_held", "1 while the GPU is held for remediation and accepts no new claims, 0 otherwise.", "gpu", "uuid", "product"),
		health: d.of("device_health", "0 if the GPU or MIG device has a fault that prevents new claims, 1 otherwise.",
			"gpu", "uuid", "product", "shape", "profile", "namespace", "pod", "container", "claim"),
		claims: d.of("gpu_claims", "Devices of prepared claims on the GPU, by the GPU's shape.",
			"gpu", "uuid", "product", "shape"),
		slices: d.of("gpu_memory_slices", "Memory slices of a GPU with MIG: free, allocated, or withheld because of a foreign MIG device.",
			"gpu", "uuid", "product", "state"),
		room: d.of("gpu_mig_devices_available", "Number of MIG devices of the profile that could be created on the GPU, if no other profile is created.",
			"gpu", "uuid", "product", "profile"),
		promised: d.of("claim_memory_bytes", "Device memory allocated to the claim, in bytes.",
			"gpu", "uuid", "product", "shape", "profile", "namespace", "claim"),
		pod: d.of("device_pod_info", "Pod that uses a GPU or a MIG device, one series per pod, for joins on uuid, or on gpu_uuid and gpu_instance. Always 1.",
			"gpu", "uuid", "gpu_uuid", "gpu_instance", "shape", "profile", "namespace", "pod", "container", "claim"),
		mappingAge: d.of("pod_mapping_age_seconds", "Time since kubelet last returned its list of pods and claims, in seconds."),
	}
}

// measured has the descriptions of the series of a quantity, for GPUs and for MIG devices.
type measured struct {
	series
	gpu, part *prometheus.Desc
}

// measured returns the descriptions of every quantity.
func (d describer) measured() []measured {
	var all []measured
	for _, s := range table() {
		of := func(kind string, labels ...string) *prometheus.Desc {
			labels = append(labels, "namespace", "pod", "container", "claim")
			if s.label != "" {
				labels = append(labels, s.label)
			}
			return d.of(kind+"_"+s.name, s.help, labels...)
		}
		all = append(all, measured{
			series: s,
			gpu:    of("gpu", "gpu", "uuid", "product", "shape"),
			part:   of("mig_device", "gpu", "uuid", "product", "shape", "profile"),
		})
	}
	return all
}

// labels returns the description for the device and the values of its labels, in their order.
func (m measured) labels(d device) (*prometheus.Desc, []string) {
	desc, values := m.gpu, []string{d.gpu, d.uuid, d.product, d.shape}
	if d.isMIG {
		desc, values = m.part, append(values, d.profile)
	}
	values = append(values, d.namespace, d.pod, d.container, d.claim)
	if m.label != "" {
		values = append(values, m.value)
	}
	return desc, values
}

// valid returns the text with invalid UTF-8 replaced, as labels require.
func valid(text string) string { return strings.ToValidUTF8(text, "?") }
