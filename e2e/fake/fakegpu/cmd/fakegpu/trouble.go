package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// troubles are the commands that inject and clear faults of a GPU.
func troubles(dir *string) []*cobra.Command {
	return []*cobra.Command{
		onGPU(dir, "lost", "Let a GPU fall off the bus: only a reboot brings it back", fakegpu.Lose),
		onGPU(dir, "require-reset", "Let a GPU answer nothing until it is reset", fakegpu.RequireReset),
		onGPU(dir, "find", "Let a GPU that did not answer answer again", fakegpu.Find),
		onGPU(dir, "heal", "Clear all faults of one GPU", fakegpu.Heal),
		onLink(dir, "link-down", "Take an NVLink down", fakegpu.LinkDown),
		onLink(dir, "link-up", "Bring an NVLink up", fakegpu.LinkUp),
		retire(dir), slowDown(dir), fabric(dir), storm(dir), reset(dir),
	}
}

func onGPU(dir *string, name, short string, do func(string, int) error) *cobra.Command {
	var gpu int
	command := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return do(*dir, gpu) },
	}
	gpuFlag(command, &gpu)
	return command
}

func onLink(dir *string, name, short string, do func(string, int, int) error) *cobra.Command {
	var gpu, link int
	command := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return do(*dir, gpu, link) },
	}
	gpuFlag(command, &gpu)
	command.Flags().IntVar(&link, "link", 0, "number of the link")
	return command
}

func retire(dir *string) *cobra.Command {
	var gpu int
	var pages uint32
	command := &cobra.Command{
		Use: "retire", Short: "Set how many pages wait to be retired, before Ampere", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return fakegpu.RetirePages(*dir, gpu, pages) },
	}
	gpuFlag(command, &gpu)
	command.Flags().Uint32Var(&pages, "pages", 1, "pages; 0 for none")
	return command
}

func slowDown(dir *string) *cobra.Command {
	var gpu int
	var heat, power bool
	command := &cobra.Command{
		Use: "slow-down", Short: "Set what the hardware slows a GPU down for; without a flag, nothing", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var reasons []fakegpu.Brake
			if heat {
				reasons = append(reasons, fakegpu.HeatBrake)
			}
			if power {
				reasons = append(reasons, fakegpu.PowerBrake)
			}
			return fakegpu.SlowDown(*dir, gpu, reasons...)
		},
	}
	gpuFlag(command, &gpu)
	command.Flags().BoolVar(&heat, "heat", false, "for heat")
	command.Flags().BoolVar(&power, "power", false, "for the power supply")
	return command
}

func fabric(dir *string) *cobra.Command {
	var gpu int
	var state uint32
	var r fakegpu.FabricReport
	command := &cobra.Command{
		Use: "fabric", Short: "Set what a GPU reports about its NVLink fabric; without a flag: joined and healthy", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			r.State = fakegpu.FabricState(state)
			return fakegpu.Fabric(*dir, gpu, r)
		},
	}
	gpuFlag(command, &gpu)
	command.Flags().Uint32Var(&state, "state", uint32(fakegpu.FabricCompleted), "1 not started, 2 in progress, 3 completed")
	command.Flags().Uint32Var(&r.Status, "status", 0, "NVML's code with which joining ended")
	command.Flags().Uint32Var(&r.Health, "health", 0, "bits: 1 degraded bandwidth, 4 route recovery, 16 route unhealthy, 64 access timeout")
	return command
}

func storm(dir *string) *cobra.Command {
	var at fakegpu.Place
	var rate int
	var duration time.Duration
	command := &cobra.Command{
		Use: "storm <code>", Short: "Report an XID again and again", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			code, err := strconv.Atoi(args[0])
			if err != nil {
				return fmt.Errorf("XID %q: must be a number", args[0])
			}
			ctx, stop := context.WithTimeout(c.Context(), duration)
			defer stop()
			posted, err := fakegpu.Storm(ctx, *dir, at, code, rate)
			fmt.Fprintf(c.OutOrStdout(), "%d XIDs\n", posted)
			return err
		},
	}
	placeFlags(command, &at)
	command.Flags().IntVar(&rate, "rate", 1000, "XIDs a second")
	command.Flags().DurationVar(&duration, "duration", time.Second, "how long")
	return command
}

func reset(dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "reset", Short: "End all that was injected (a GPU is reset by nvidia-smi -r)", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return fakegpu.Reset(*dir) },
	}
}
