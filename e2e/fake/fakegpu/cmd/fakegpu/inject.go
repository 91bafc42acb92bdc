package main

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

func xid(dir *string) *cobra.Command {
	var at fakegpu.Place
	command := &cobra.Command{
		Use: "xid <code>", Short: "Report an XID error", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			code, err := strconv.Atoi(args[0])
			if err != nil {
				return fmt.Errorf("XID %q: must be a number", args[0])
			}
			return fakegpu.XID(*dir, at, code)
		},
	}
	placeFlags(command, &at)
	return command
}

func placeFlags(command *cobra.Command, at *fakegpu.Place) {
	gpuFlag(command, &at.GPU)
	command.Flags().IntVar(&at.Instance, "gi", fakegpu.Whole, "GPU instance id; -1 for the whole GPU")
	command.Flags().IntVar(&at.Compute, "ci", fakegpu.Whole, "compute instance id; -1 for the whole GPU instance")
}

func gpuFlag(command *cobra.Command, gpu *int) {
	command.Flags().IntVar(gpu, "gpu", 0, "index of the GPU")
}

func ecc(dir *string) *cobra.Command {
	var at fakegpu.Place
	var corrected, uncorrected uint64
	command := &cobra.Command{
		Use: "ecc", Short: "Count and report memory errors, of a GPU or of a GPU instance", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if at.Instance != fakegpu.Whole {
				return fakegpu.InstanceECC(*dir, at, uncorrected)
			}
			return fakegpu.ECC(*dir, at.GPU, corrected, uncorrected)
		},
	}
	placeFlags(command, &at)
	command.Flags().Uint64Var(&corrected, "corrected", 0, "single bit errors; a GPU instance counts none")
	command.Flags().Uint64Var(&uncorrected, "uncorrected", 0, "double bit errors")
	return command
}

func remap(dir *string) *cobra.Command {
	var gpu int
	var r fakegpu.Remapping
	command := &cobra.Command{
		Use: "remap", Short: "Set the report of the row remapper", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return fakegpu.Remap(*dir, gpu, r) },
	}
	gpuFlag(command, &gpu)
	command.Flags().Uint32Var(&r.Correctable, "correctable", 0, "rows remapped after correctable errors")
	command.Flags().Uint32Var(&r.Uncorrectable, "uncorrectable", 0, "rows remapped after uncorrectable errors")
	command.Flags().BoolVar(&r.Pending, "pending", false, "a reset would remap a row")
	command.Flags().BoolVar(&r.Failed, "failed", false, "a row could not be remapped")
	return command
}

func fail(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "fail <function> <code> [<count>]",
		Short: "Let the next calls of an NVML function fail; without a count, all of them",
		Args:  cobra.RangeArgs(2, 3),
		RunE: func(_ *cobra.Command, args []string) error {
			numbers := []uint32{0, fakegpu.Forever}
			for i, text := range args[1:] {
				n, err := strconv.ParseUint(text, 10, 32)
				if err != nil || n == math.MaxUint32 {
					return fmt.Errorf("%q: must be a number", text)
				}
				numbers[i] = uint32(n)
			}
			return fakegpu.Fail(*dir, args[0], numbers[0], numbers[1])
		},
	}
}

func slow(dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "slow <function> <duration>", Short: "Let an NVML function take longer", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			by, err := time.ParseDuration(args[1])
			if err != nil {
				return err
			}
			return fakegpu.Slow(*dir, args[0], by)
		},
	}
}

func latency(dir *string) *cobra.Command {
	var create, destroy time.Duration
	command := &cobra.Command{
		Use: "latency", Short: "Set how long GPU instances take; on hardware, about a second", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return fakegpu.Latency(*dir, create, destroy) },
	}
	command.Flags().DurationVar(&create, "create", 0, "time to create one")
	command.Flags().DurationVar(&destroy, "destroy", 0, "time to destroy one")
	return command
}
