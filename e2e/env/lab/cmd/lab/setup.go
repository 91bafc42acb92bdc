package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/host"
)

func newSetup(p *place) *cobra.Command {
	virtual := false
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Install missing host packages (root) and build the cluster's programs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cache, err := cacheFolder()
			if err != nil {
				return err
			}
			if err := host.CheckRoot(p.dir(), cache); err != nil {
				return err
			}
			needs := host.Needs()
			if virtual {
				needs = append(needs, host.VirtualNeeds()...)
			}
			if err := host.Install(cmd.Context(), os.Stderr, needs); err != nil {
				return err
			}
			return build(cmd)
		},
	}
	cmd.Flags().BoolVar(&virtual, "virtual", false, "also what virtual machines need: QEMU and mmdebstrap")
	return cmd
}

func newBuild() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the cluster's programs into the cache, where they are missing",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return build(cmd) },
	}
}

// build prints the folder of each family of programs.
func build(cmd *cobra.Command) error {
	cache, err := cacheFolder()
	if err != nil {
		return err
	}
	builder, err := binaries.NewBuilder(cache, os.Stderr)
	if err != nil {
		return err
	}
	folders, err := builder.Build(cmd.Context())
	if err != nil {
		return err
	}
	families, err := binaries.Families()
	if err != nil {
		return err
	}
	for _, family := range families {
		cmd.Println(folders[family.Name])
	}
	return nil
}
