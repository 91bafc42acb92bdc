package exporter

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// series is how a quantity is shown.
type series struct {
	quantity gpu.Quantity
	// name follows tessera_gpu_ or, for MIG devices, tessera_slice_.
	name, help string
	kind       prometheus.ValueType
	// label and value tell the series of one name apart; both are empty where there is one.
	label, value string
}

// table lists how every quantity is shown.
func table() []series {
	const (
		gauge   = prometheus.GaugeValue
		counter = prometheus.CounterValue

		limited   = "Whether the clocks are held down, by reason."
		recent    = "ECC errors of memory since the driver was loaded."
		lifetime  = "ECC errors of memory in the GPU's lifetime."
		remapped  = "Rows of memory that were remapped, by the severity of their errors."
		retired   = "Pages of memory that were retired, by cause; before Ampere."
		link      = "Errors on the GPU's NVLinks since the driver was loaded."
		frequency = "Clock frequency now, in hertz."
	)
	return []series{
		{gpu.Utilization, "utilization_ratio", "Part of the driver's last sample, up to a second, in which a kernel ran; none while the GPU is carved into MIG devices.", gauge, "", ""},
		{gpu.MemoryUtilization, "memory_utilization_ratio", "Part of the driver's last sample in which device memory was read or written; none while the GPU is carved.", gauge, "", ""},
		{gpu.MemoryUsed, "memory_used_bytes", "Device memory that is allocated, without what the driver keeps for itself, in bytes.", gauge, "", ""},
		{gpu.MemoryTotal, "memory_total_bytes", "Device memory, in bytes.", gauge, "", ""},
		{gpu.Temperature, "temperature_celsius", "Temperature of the GPU's core, in degrees Celsius.", gauge, "", ""},
		{gpu.MemoryTemperature, "memory_temperature_celsius", "Temperature of the device memory, in degrees Celsius.", gauge, "", ""},
		{gpu.Power, "power_watts", "Power draw of the whole board, in watts.", gauge, "", ""},
		{gpu.PowerLimit, "power_limit_watts", "Power that the board may draw, in watts.", gauge, "", ""},
		{gpu.Energy, "energy_joules_total", "Energy that the board used since the driver was loaded, in joules.", counter, "", ""},
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
		{gpu.RemapPending, "row_remap_pending", "Whether the next reset will remap a row of memory.", gauge, "", ""},
		{gpu.RemapFailed, "row_remap_failed", "Whether a row of memory could not be remapped: the GPU must be replaced.", gauge, "", ""},
		{gpu.RetiredSingleBit, "retired_pages_total", retired, counter, "cause", "single_bit"},
		{gpu.RetiredDoubleBit, "retired_pages_total", retired, counter, "cause", "double_bit"},
		{gpu.RetirePending, "page_retirement_pending", "Whether the next reset will retire a page of memory; before Ampere.", gauge, "", ""},
		{gpu.PCIeReplays, "pcie_replays_total", "Packets that were sent again on PCIe since the driver was loaded.", counter, "", ""},
		{gpu.LinkFlitErrors, "nvlink_errors_total", link, counter, "kind", "crc_flit"},
		{gpu.LinkDataErrors, "nvlink_errors_total", link, counter, "kind", "crc_data"},
		{gpu.LinkReplays, "nvlink_errors_total", link, counter, "kind", "replay"},
		{gpu.LinkRecoveries, "nvlink_errors_total", link, counter, "kind", "recovery"},
	}
}

// facts describe the series that do not come from the hardware.
type facts struct {
	info, up, held, health, claims, slices, room, promised, pod, mappingAge *prometheus.Desc
}

// describer makes descriptions that carry the node's name.
type describer struct{ node string }

func (d describer) of(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tessera_"+name, help, labels, prometheus.Labels{"node": d.node})
}

func (d describer) facts() facts {
	return facts{
		info: d.of("gpu_info", "A GPU of the node and its driver.", "gpu", "uuid", "product", "architecture", "driver_version", "cuda_version"),
		up:   d.of("gpu_up", "Whether the GPU answered the last time that it was asked.", "gpu", "uuid", "product"),
		held: d.of("gpu_held", "Whether the GPU is held for a remedy: no new claims.", "gpu", "uuid", "product"),
		health: d.of("device_health", "Whether nothing is wrong with the GPU or MIG device that keeps claims off it: 1 healthy, 0 not.",
			"gpu", "uuid", "product", "shape", "profile", "namespace", "pod", "container", "claim"),
		claims: d.of("gpu_claims", "Devices of claims on the GPU; the label shape says as what they use it.",
			"gpu", "uuid", "product", "shape"),
		slices: d.of("gpu_memory_slices", "Memory slices of a GPU that can be carved: free, held by claims, or withheld because something else lives there.",
			"gpu", "uuid", "product", "state"),
		room: d.of("gpu_mig_room", "How many more MIG devices of the profile fit on the GPU now, if no other is made.",
			"gpu", "uuid", "product", "profile"),
		promised: d.of("claim_memory_bytes", "Device memory that the claim was promised with the device, in bytes.",
			"gpu", "uuid", "product", "shape", "profile", "namespace", "claim"),
		pod: d.of("device_pod_info", "A pod that uses a GPU or a MIG device, one series for each pod, for joins on uuid.",
			"gpu", "uuid", "shape", "profile", "namespace", "pod", "container", "claim"),
		mappingAge: d.of("pod_mapping_age_seconds", "Time since kubelet last told which pods use which claims, in seconds."),
	}
}

// measured describes the series of a quantity, for GPUs and for MIG devices.
type measured struct {
	series
	gpu, part *prometheus.Desc
}

// measured returns how every quantity is shown.
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
			part:   of("slice", "gpu", "uuid", "product", "shape", "profile"),
		})
	}
	return all
}

// labels returns the values of the labels, in their order.
func (m measured) labels(d device) (*prometheus.Desc, []string) {
	desc, values := m.gpu, []string{d.gpu, d.uuid, d.product, d.shape}
	if d.part {
		desc, values = m.part, append(values, d.profile)
	}
	values = append(values, d.namespace, d.pod, d.container, d.claim)
	if m.label != "" {
		values = append(values, m.value)
	}
	return desc, values
}

// valid returns the text as a label may have it.
func valid(text string) string { return strings.ToValidUTF8(text, "?") }
