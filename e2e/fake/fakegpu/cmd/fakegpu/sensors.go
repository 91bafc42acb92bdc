package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

func sense(dir *string) *cobra.Command {
	var gpu int
	r := fakegpu.Idle()
	command := &cobra.Command{
		Use: "sense", Short: "Set what the sensors of a GPU show; what is not named shows an idle GPU", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return fakegpu.Sense(*dir, gpu, r) },
	}
	gpuFlag(command, &gpu)
	for _, number := range []struct {
		name, usage string
		value       *uint32
	}{
		{"utilization", "percent of time that kernels run", &r.GPUUtilization},
		{"memory-utilization", "percent of time that memory is read or written", &r.MemoryUtilization},
		{"encoder-utilization", "percent", &r.EncoderUtilization},
		{"decoder-utilization", "percent", &r.DecoderUtilization},
		{"temperature", "degrees Celsius", &r.Temperature},
		{"power", "milliwatts", &r.Power},
		{"sm-clock", "MHz", &r.SMClock},
		{"memory-clock", "MHz", &r.MemoryClock},
		{"retired-single", "pages retired for single bit errors, before Ampere", &r.RetiredSingleBit},
		{"retired-double", "pages retired for double bit errors, before Ampere", &r.RetiredDoubleBit},
	} {
		command.Flags().Uint32Var(number.value, number.name, *number.value, number.usage)
	}
	command.Flags().Uint64Var(&r.Energy, "energy", r.Energy, "millijoules since the driver was loaded")
	command.Flags().Uint64Var(&r.ClockReasons, "clock-reasons", r.ClockReasons, "bits of nvmlClocksEventReason")
	return command
}

func linkErrors(dir *string) *cobra.Command {
	var gpu, link int
	var count uint64
	command := &cobra.Command{
		Use: "link-errors", Short: "Count errors of an NVLink", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return fakegpu.CountLinkErrors(*dir, gpu, link, count) },
	}
	gpuFlag(command, &gpu)
	command.Flags().IntVar(&link, "link", 0, "number of the link")
	command.Flags().Uint64Var(&count, "count", 1, "errors to add")
	return command
}

func process(dir *string) *cobra.Command {
	var at fakegpu.Place
	var bytes uint64
	command := &cobra.Command{Use: "process", Short: "Show a process on a GPU, or take it away"}
	start := &cobra.Command{
		Use: "start <pid>", Short: "Show a process, or change its memory", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return withPID(args[0], func(pid uint32) error { return fakegpu.StartProcess(*dir, at, pid, bytes) })
		},
	}
	start.Flags().Uint64Var(&bytes, "memory", 0, "bytes of device memory")
	end := &cobra.Command{
		Use: "end <pid>", Short: "Take a process away", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return withPID(args[0], func(pid uint32) error { return fakegpu.EndProcess(*dir, at, pid) })
		},
	}
	for _, c := range []*cobra.Command{start, end} {
		placeFlags(c, &at)
		command.AddCommand(c)
	}
	return command
}

func withPID(text string, f func(uint32) error) error {
	pid, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return fmt.Errorf("process %q: must be a number", text)
	}
	return f(uint32(pid))
}
