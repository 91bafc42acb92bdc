package main

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/migmode"
	"github.com/tessera-gpu/tessera/installer/host/netdriver"
	"github.com/tessera-gpu/tessera/installer/host/preflight"
	"github.com/tessera-gpu/tessera/installer/host/survey"
	"github.com/tessera-gpu/tessera/installer/host/toolkit"
	"github.com/tessera-gpu/tessera/installer/host/unload"
)

// hostFlags are the flags that all subcommands of `tessera-node host` and the discovery share.
type hostFlags struct {
	roots host.Roots
	// terminationLog is the file of the container's termination message.
	terminationLog string
}

func (f *hostFlags) addRoots(flags *pflag.FlagSet) {
	f.roots = host.Roots{Host: "/", Proc: "/proc", Sys: "/sys", Dev: "/", Driver: "/run/nvidia/driver"}
	flags.StringVar(&f.roots.Host, "host-root", f.roots.Host, "path at which the host's root is mounted")
	flags.StringVar(&f.roots.Proc, "proc-root", f.roots.Proc, "path at which the host's procfs is mounted")
	flags.StringVar(&f.roots.Sys, "sys-root", f.roots.Sys, "path at which the host's sysfs is mounted, including efivarfs")
	flags.StringVar(&f.roots.Dev, "dev-root", f.roots.Dev, "folder whose dev holds the device nodes")
	flags.StringVar(&f.roots.Driver, "driver-root", f.roots.Driver, "path on the host at which a driver container mounts its root")
}

// finish reports the result of a subcommand. If it failed, finish returns an error, so that the process exits with a failure;
// the result is printed in any case.
func (f *hostFlags) finish(cmd *cobra.Command, result host.Result) error {
	if err := result.Report(cmd.OutOrStdout(), f.terminationLog); err != nil {
		return err
	}
	if !result.Done {
		return errors.New(result.Verb + ": " + result.Reason + ": " + result.Message)
	}
	return nil
}

// hostCommand returns the command with the subcommands that change the host. Each prints a host.Result and writes it to the
// termination message.
func hostCommand() *cobra.Command {
	f := &hostFlags{}
	c := &cobra.Command{
		Use:   "host",
		Short: "Change the host for the installer; each subcommand prints its result as JSON",
		Args:  cobra.NoArgs,
	}
	f.addRoots(c.PersistentFlags())
	addTerminationLog(c.PersistentFlags(), &f.terminationLog)
	c.AddCommand(preflightCommand(f), unloadCommand(f), networkDriverCommand(f), toolkitCommand(f), migModeCommand(f))
	return c
}

func preflightCommand(f *hostFlags) *cobra.Command {
	want, scratch, modules := preflight.Want{}, "/", string(preflight.Compiled)
	c := &cobra.Command{
		Use:   "preflight",
		Short: "Check whether a driver can be installed, without changing the host",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want.Modules = preflight.Modules(modules)
			if err := want.Modules.Validate(); err != nil {
				return err
			}
			seen, err := preflight.Look(f.roots, scratch)
			if err != nil {
				return f.finish(cmd, host.Outcome(preflight.Verb, false, "", err))
			}
			return f.finish(cmd, preflight.Result(want, seen))
		},
	}
	flags := c.Flags()
	flags.StringVar(&want.Kernel, "kernel", "", "release of the kernel that the driver was chosen for; empty: any")
	flags.StringVar(&want.OS, "os", "", "operating system that the driver was chosen for, as discovery names it; empty: any")
	flags.StringVar(&modules, "modules", modules, "source of the kernel modules: precompiled, compiled or compiled-with-host-headers")
	flags.Uint64Var(&want.MinFree, "min-free", 1<<30, "bytes that the driver's files need")
	flags.StringVar(&scratch, "scratch", scratch, "folder on the file system of the driver's files")
	return c
}

func unloadCommand(f *hostFlags) *cobra.Command {
	config, simulated := unload.Config{Mounts: unload.MountTable{File: "/proc/self/mountinfo"}}, ""
	c := &cobra.Command{
		Use:   "unload",
		Short: "Remove the modules and the root of an earlier driver container from the host, unless they are in use",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config.Roots = f.roots
			if config.Processes == "" {
				config.Processes = filepath.Join(f.roots.Host, "proc")
			}
			config.Kernel = unload.Linux{Roots: f.roots}
			if simulated != "" {
				config.Kernel = unload.Simulated{Roots: f.roots, Program: simulated}
			}
			return f.finish(cmd, config.Run(cmd.Context()))
		},
	}
	flags := c.Flags()
	flags.StringVar(&config.Digest, "digest", "", "digest of the next driver: a loaded driver with this digest is kept; empty: none is kept")
	flags.StringVar(&config.StateFile, "state-file", "/run/nvidia/nvidia-driver.state", "path on the host of the file with the digest of a driver container")
	flags.StringVar(&config.FirmwarePath, "firmware-path", "/run/nvidia/driver/lib/firmware", "firmware search path that a driver container sets; it is cleared with its driver")
	flags.StringVar(&config.Validations, "validations", "/run/nvidia/validations", "path on the host of the folder in which a driver container reports its readiness")
	flags.StringVar(&config.Processes, "processes", "", "procfs with the host's programs; empty: proc below the host's root")
	addSimulated(flags, &simulated)
	return c
}

func networkDriverCommand(f *hostFlags) *cobra.Command {
	config := netdriver.Config{Period: 5 * time.Second}
	c := &cobra.Command{
		Use:   netdriver.Verb,
		Short: "Wait for the driver of Mellanox network adapters, if the host has any",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config.Roots = f.roots
			return f.finish(cmd, config.Run(cmd.Context()))
		},
	}
	flags := c.Flags()
	flags.BoolVar(&config.FromHost, "from-host", false, "the host has its own network driver; none is installed by a container")
	flags.DurationVar(&config.Timeout, "timeout", 10*time.Minute, "limit of the wait")
	return c
}

func toolkitCommand(f *hostFlags) *cobra.Command {
	var (
		config               toolkit.Config
		service              toolkit.Service
		restart              string
		watch, remove, check bool
	)
	c := &cobra.Command{
		Use:   "toolkit",
		Short: "Configure the container runtime to read CDI specs, where this is not the default (containerd 1.7)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config.Roots, service.Roots, service.Command = f.roots, f.roots, strings.Fields(restart)
			config.Runtime = service
			switch {
			case remove:
				return f.finish(cmd, config.Remove())
			case check:
				return f.finish(cmd, config.Check(cmd.Context()))
			case !watch:
				result, _ := config.Once(cmd.Context())
				return f.finish(cmd, result)
			}
			result, err := config.Watch(cmd.Context(), func(r host.Result) {
				if err := r.Report(cmd.OutOrStdout(), ""); err != nil {
					klog.FromContext(cmd.Context()).Error(err, "Cannot print the result")
				}
			})
			if err != nil {
				return err
			}
			return f.finish(cmd, result)
		},
	}
	flags := c.Flags()
	addRuntime(flags, &config.Main, &config.CDI)
	flags.StringVar(&service.Socket, "runtime-endpoint", "",
		"path on the host of the container runtime's socket; empty: the first well-known one that exists")
	flags.StringVar(&restart, "restart", "systemctl restart containerd",
		"command that restarts the runtime, run in the host's root; it ends when the runtime is up")
	flags.BoolVar(&watch, "watch", false, "keep running, and restore the configuration when it is overwritten")
	flags.BoolVar(&remove, "remove", false, "remove the configuration that this command has written; it applies at the next start of the runtime")
	flags.BoolVar(&check, "check", false, "only check whether the running container runtime reads CDI specs")
	c.MarkFlagsMutuallyExclusive("watch", "remove", "check")
	return c
}

func migModeCommand(f *hostFlags) *cobra.Command {
	var mode string
	c := &cobra.Command{
		Use:   "mig-mode",
		Short: "Enable or disable MIG on all GPUs of the node that support it, with a reset where required",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tool, err := survey.SMI(f.roots)
			if err != nil {
				return f.finish(cmd, host.Outcome(migmode.Verb, false, "",
					&host.Failure{Reason: migmode.NoDriver, Message: "the node has no driver", Cause: err}))
			}
			return f.finish(cmd, migmode.Run(cmd.Context(), migmode.SMI{Program: tool}, migmode.Mode(mode)))
		},
	}
	c.Flags().StringVar(&mode, "mode", "", "Enabled or Disabled")
	return c
}

// addTerminationLog adds the flag of the file that a result is written to.
func addTerminationLog(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "termination-log", "/dev/termination-log", "file of the container's termination message; empty: none")
}

// addSimulated adds the flag for simulated hardware, whose modules are not loaded in the kernel.
func addSimulated(flags *pflag.FlagSet, program *string) {
	flags.StringVar(program, "simulated", "",
		"for tests with simulated hardware only: program that removes kernel modules instead of the kernel, run as <program> rmmod <module>")
}

// addRuntime adds the flags of the container runtime. The agent has the folder of CDI specs as a persistent flag; here it is
// the path on the host.
func addRuntime(flags *pflag.FlagSet, containerdConfig, cdi *string) {
	flags.StringVar(containerdConfig, "containerd-config", "/etc/containerd/config.toml", "path on the host of containerd's configuration")
	flags.StringVar(cdi, "cdi-dir", "/var/run/cdi", "path on the host of the folder of CDI specs that the runtime reads")
}
