package main

// #cgo LDFLAGS: -ldl
// #include "nvml.h"
import "C"

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// gpus are the GPUs of the container, on a node of that name.
type gpus struct{ host string }

// openGPUs opens the driver for the lifetime of the process. The service makes one query at a time.
func openGPUs(host string) (gpus, error) {
	if code := C.nvml_begin(); code != 0 {
		return gpus{}, fmt.Errorf("open NVML: code %d", int(code))
	}
	return gpus{host}, nil
}

// field is a field of DCGM: its name, kind and meaning, and its value in DCGM's unit.
type field struct {
	name, kind, help string
	value            func(*C.struct_reading) float64
}

// sysAdmin is the number of CAP_SYS_ADMIN (linux/capability.h).
const sysAdmin = 21

// mayProfile reports whether the driver permits this process to read performance counters.
func mayProfile() (bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	_, rest, _ := strings.Cut(string(status), "CapEff:")
	text, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	effective, err := strconv.ParseUint(text, 16, 64)
	return effective&(1<<sysAdmin) != 0, err
}

// profilingFields are fields of default-counters.csv of dcgm-exporter that exist with performance counters only. A GPU in MIG mode has them, too, although
// NVML has no utilization for it.
func profilingFields() []field {
	ratio := func(percent float64) float64 { return max(percent, 0) * centi }
	return []field{
		{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Ratio of time the graphics engine is active.",
			func(r *C.struct_reading) float64 { return ratio(float64(r.utilization)) }},
		{"DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Ratio of cycles the device memory interface is active sending or receiving data.",
			func(r *C.struct_reading) float64 { return ratio(float64(r.memory_utilization)) }},
	}
}

const (
	mebi  = 1 << 20
	centi = 1e-2
	milli = 1e-3
)

func fields() []field {
	return []field{
		{"DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", func(r *C.struct_reading) float64 { return float64(r.sm_clock) }},
		{"DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", func(r *C.struct_reading) float64 { return float64(r.memory_clock) }},
		{"DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", func(r *C.struct_reading) float64 { return float64(r.temperature) }},
		{"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", func(r *C.struct_reading) float64 { return float64(r.power) * milli }},
		{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).", func(r *C.struct_reading) float64 { return float64(r.energy) }},
		{"DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", func(r *C.struct_reading) float64 { return float64(r.utilization) }},
		{"DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", func(r *C.struct_reading) float64 { return float64(r.memory_utilization) }},
		{"DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", func(r *C.struct_reading) float64 { return float64(r.free) / mebi }},
		{"DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", func(r *C.struct_reading) float64 { return float64(r.used) / mebi }},
	}
}

// write writes all fields of all GPUs. Pods are not among the labels: the exporter sees GPUs only.
func (g gpus) write(_ context.Context, w io.Writer) error {
	count := int(C.nvml_count())
	if count < 0 {
		return fmt.Errorf("count the GPUs: the driver does not answer")
	}
	readings := make([]C.struct_reading, count)
	for i := range readings {
		if code := C.nvml_read(C.uint(i), &readings[i]); code != 0 {
			return fmt.Errorf("read GPU %d: code %d", i, int(code))
		}
	}
	var version [C.TEXT]C.char
	C.nvml_version(&version[0])
	var text bytes.Buffer
	all := fields()
	if profiles, err := mayProfile(); err != nil {
		return err
	} else if profiles {
		all = append(all, profilingFields()...)
	}
	for _, f := range all {
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for i := range readings {
			r := &readings[i]
			if value := f.value(r); value >= 0 {
				fmt.Fprintf(&text, "%s{gpu=\"%d\",UUID=%q,device=\"nvidia%d\",modelName=%q,hostname=%q,DCGM_FI_DRIVER_VERSION=%q} %g\n",
					f.name, i, C.GoString(&r.uuid[0]), int(r.minor), C.GoString(&r.name[0]), g.host, C.GoString(&version[0]), value)
			}
		}
	}
	_, err := w.Write(text.Bytes())
	return err
}
