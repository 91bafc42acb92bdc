package main

import (
	"context"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/cdi"
	"github.com/tessera-gpu/tessera/kubelet-plugin/devnode"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
)

// installHook installs the program of the CDI hooks and returns its path. It removes former versions, except the one that the common CDI spec still
// names: a container that is being created has its path, and an older agent that leads again after a failed upgrade writes it. Without a spec, all
// versions are kept.
func (c config) installHook(ctx context.Context) (string, error) {
	dir := filepath.Join(c.data(), hooksFolder)
	program, err := hook.Install(disk.Host{}, c.hook, dir)
	if err != nil {
		return "", err
	}
	used, exists, err := cdi.HookPrograms(c.cdi)
	if err == nil && exists {
		err = hook.RemoveUnused(disk.Host{}, dir, append(used, program))
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Former versions of the hook program are kept")
	}
	return program, nil
}

// specs returns the CDI specs, whose hooks run the program.
func (c config) specs(ctx context.Context, program string, nodes *devnode.Maker, leads func() bool) *cdi.Specs {
	makeNodes := func() error { return nodes.Ensure(ctx) }
	return cdi.New(cdi.Config{Dir: c.cdi, Roots: c.roots(), Hook: program, Limits: c.limits(), Leads: leads, Nodes: makeNodes})
}
