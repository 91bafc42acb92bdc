package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// root is the command line; every command works on the folder of the flag --dir.
func root() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:           "fakegpu",
		Short:         "Make and trouble a machine with fake NVIDIA GPUs",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.PersistentFlags().StringVar(&dir, "dir", "/run/fakegpu", "folder of the machine")
	command.AddCommand(
		initialize(&dir), machines(), state(&dir), reboot(&dir), driver(&dir), insmod(&dir), rmmod(&dir),
		xid(&dir), ecc(&dir), remap(&dir), sense(&dir), linkErrors(&dir), process(&dir),
		fail(&dir), slow(&dir), latency(&dir), group(&dir),
	)
	command.AddCommand(troubles(&dir)...)
	return command
}

func initialize(dir *string) *cobra.Command {
	var spec fakegpu.Spec
	command := &cobra.Command{
		Use:   "init",
		Short: "Make the machine in an empty folder (root)",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return fakegpu.Install(c.Context(), *dir, spec)
		},
	}
	command.Flags().StringVar(&spec.Machine, "machine", "h100x2", "machine of the catalogue; see fakegpu machines")
	command.Flags().StringVar(&spec.Node, "node", "", "name of the node; the UUIDs follow from it")
	command.Flags().StringVar(&spec.DriverVersion, "driver-version", "", "version of the driver (default "+catalog.DriverVersion+")")
	command.Flags().StringVar(&spec.Kernel, "kernel", "", "release of the kernel")
	command.Flags().BoolVar(&spec.Bare, "bare", false, "without a driver: insmod loads its modules")
	return command
}

func insmod(dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "insmod <module> <version>", Short: "Load a module of a driver into a bare machine (root)", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return fakegpu.Insmod(*dir, fakegpu.Module(args[0]), args[1])
		},
	}
}

func rmmod(dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "rmmod <module>", Short: "Unload a module, unless it is in use", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return fakegpu.Rmmod(*dir, fakegpu.Module(args[0])) },
	}
}

func machines() *cobra.Command {
	return &cobra.Command{
		Use:   "machines",
		Short: "List the machines of the catalogue",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := catalog.Machines()
			if err != nil {
				return err
			}
			for _, m := range list {
				fmt.Fprintf(c.OutOrStdout(), "%-14s %2d GPUs\n", m.Name, len(m.GPUs))
			}
			return nil
		},
	}
}

func state(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "state",
		Short: "Print what the machine holds, as JSON",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			state, err := fakegpu.Read(*dir)
			if err != nil {
				return err
			}
			encoder := json.NewEncoder(c.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(state)
		},
	}
}

func reboot(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "reboot",
		Short: "Restart the machine: instances are gone, MIG mode stays only on Ampere",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return fakegpu.Reboot(*dir) },
	}
}

func driver(dir *string) *cobra.Command {
	command := &cobra.Command{Use: "driver", Short: "Take the driver away, bring it back, or replace it"}
	command.AddCommand(
		&cobra.Command{
			Use: "remove", Short: "Unload the driver and take its files away", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return fakegpu.RemoveDriver(*dir) },
		},
		&cobra.Command{
			Use: "restore", Short: "Bring a removed driver back", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return fakegpu.RestoreDriver(*dir) },
		},
		&cobra.Command{
			Use: "set <version>", Short: "Replace the driver by another version", Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				return fakegpu.SetDriverVersion(c.Context(), *dir, args[0])
			},
		},
	)
	return command
}
