package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// place identifies the lab of this invocation.
type place struct {
	name   string
	folder string
}

// dir returns the lab's folder: as given, or by name below lab.Base.
func (p place) dir() string {
	if p.folder != "" {
		return p.folder
	}
	return filepath.Join(lab.Base, p.name)
}

func newCommand() *cobra.Command {
	p := &place{}
	root := &cobra.Command{
		Use:           "lab",
		Short:         "A real Kubernetes cluster with fake GPUs on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&p.name, "name", "lab", "name of the lab")
	root.PersistentFlags().StringVar(&p.folder, "dir", "", "folder of the lab (default "+lab.Base+"/<name>)")
	root.AddCommand(newSetup(p), newBuild(), newUp(p), newDown(p), newStatus(p), newKubeconfig(p), newNode(p), newService(p), newImages(p))
	return root
}

func cacheFolder() (string, error) { return binaries.DefaultCache() }
