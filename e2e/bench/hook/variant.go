package main

import (
	"context"
	"path/filepath"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/e2e/env/runc"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/tests/hooks"
	"github.com/tessera-gpu/tessera/kubelet-plugin/cdi"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The variants.
const (
	bare         = "without CDI"
	withoutHooks = "CDI without hooks"
	withOurs     = "CDI"
	withTheirs   = "CDI with NVIDIA's hooks"
)

// machine is the node of every row.
const machine = "h100x8"

// variant is a way to start the container.
type variant struct {
	name string
	spec oci.Spec
}

// driver reports whether the container should find the driver.
func (v variant) driver() bool { return v.name == withOurs || v.name == withTheirs }

// variants writes our CDI specs for a whole GPU and applies them as container runtimes do.
func (b *bench) variants(ctx context.Context) ([]variant, error) {
	dir, err := b.folder.Sub("machine")
	if err != nil {
		return nil, err
	}
	if err := fakegpu.Install(ctx, dir, fakegpu.Spec{Machine: machine}); err != nil {
		return nil, err
	}
	found, err := catalog.FindMachine(machine)
	if err != nil {
		return nil, err
	}
	node, err := found.Node("node1")
	if err != nil {
		return nil, err
	}
	specs := cdi.New(cdi.Config{
		Dir: filepath.Join(dir, "cdi"), Hook: b.ours, Leads: func() bool { return true },
		Roots: driverroot.Roots{
			Host: "/", Proc: fakegpu.ProcRoot(dir), Sys: fakegpu.SysRoot(dir),
			Driver: fakegpu.DriverRoot(dir), Dev: fakegpu.DevRoot(dir),
		},
	})
	g := node.GPUs[0]
	ids, err := specs.Write("claim", []prepare.Prepared{{
		Result: prepare.Result{Device: g.Name()}, Use: gpu.Device{GPU: g.Name(), Use: gpu.Use{Shape: gpu.Whole}}, GPU: g,
	}})
	if err != nil {
		return nil, err
	}
	full := runc.Spec()
	if err := runc.Inject(&full, filepath.Join(dir, "cdi"), ids[0]...); err != nil {
		return nil, err
	}
	return []variant{{bare, runc.Spec()}, {withoutHooks, hooked(full, "")}, {withOurs, full}, {withTheirs, hooked(full, b.theirs)}}, nil
}

// hooked returns the spec with the program as executable of the same hooks, one process each as in
// NVIDIA's specs; without a program there are no hooks.
func hooked(spec oci.Spec, program string) oci.Spec {
	apart := &oci.Hooks{}
	for _, h := range spec.Hooks.CreateContainer {
		for _, args := range hooks.Apart(h.Args[1:]) {
			if program != "" {
				h.Path, h.Args = program, append([]string{peer}, args...)
				apart.CreateContainer = append(apart.CreateContainer, h)
			}
		}
	}
	spec.Hooks = apart
	return spec
}
