package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/mps"
)

// mpsFolder is the parent of the folders of MPS daemons, on the host and in every pod. It is in memory, so that its content
// does not survive a boot.
const mpsFolder = "/run/tessera/mps"

// mpsCommand returns the command of the pod of an MPS daemon.
func mpsCommand(c *config) *cobra.Command {
	name, dir := "", mpsFolder
	cmd := &cobra.Command{
		Use:    mps.Verb,
		Short:  "Run one MPS control daemon; the agent starts this in a pod",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return errors.New("--name: must be the name of a daemon")
			}
			c, err := c.load()
			if err != nil {
				return err
			}
			return mps.NewSupervisor(mps.SupervisorConfig{
				Folder:       filepath.Join(dir, name),
				Pod:          c.podUID,
				SharedMemory: mps.SharedMemory,
				Program:      func() (mps.Program, error) { return mpsProgram(c.roots()) },
			}).Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&name, "name", name, "name of the daemon")
	cmd.Flags().StringVar(&dir, "dir", dir, "folder of the daemons' folders, under the same path as on the host")
	return cmd
}

// mpsControl is the name of the driver's program.
const mpsControl = "nvidia-cuda-mps-control"

// mpsProgram returns the driver's program and its libraries at their paths in this container.
func mpsProgram(roots driverroot.Roots) (mps.Program, error) {
	driver, err := driverroot.Scan(roots)
	if err != nil {
		return mps.Program{}, err
	}
	i := slices.IndexFunc(driver.Programs, func(f driverroot.File) bool { return filepath.Base(f.Path) == mpsControl })
	if i < 0 {
		return mps.Program{}, fmt.Errorf("the driver %s has no %s: install its compute utilities", driver.Version, mpsControl)
	}
	var program mps.Program
	if program.Path, err = roots.See(driver.Programs[i].Host); err != nil {
		return mps.Program{}, err
	}
	add := func(name, target string) {
		if !slices.ContainsFunc(program.Libraries, func(l mps.Library) bool { return l.Name == name }) {
			program.Libraries = append(program.Libraries, mps.Library{Name: name, Target: target})
		}
	}
	for _, library := range driver.Libraries {
		seen, err := roots.See(library.Host)
		if err != nil {
			return mps.Program{}, err
		}
		add(filepath.Base(library.Path), seen)
	}
	for _, link := range driver.Links {
		// All libraries are in one folder here, so that the name of the target is sufficient.
		add(filepath.Base(link.Path), filepath.Base(link.Target))
	}
	return program, nil
}
