package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tessera-gpu/tessera/e2e/bench/testbed"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// bench is one run.
type bench struct {
	*testbed.Bed
	options
}

// plugin is a running plugin: our agent, or the null plugin.
type plugin struct {
	*harness.Process
	socket string
	// ready returns why the plugin should not replace another yet.
	ready func(context.Context) error
	// metrics reads the plugin's metrics; nil for one without metrics.
	metrics func(context.Context) (string, error)
}

// kind is a plugin that can be started on a host, with the UID of its pod.
type kind func(b *bench, h *harness.Host, uid string) (plugin, error)

// ours starts the agent.
func ours(b *bench, h *harness.Host, uid string) (plugin, error) {
	a, err := h.Start(harness.Launch{Program: b.Agent, Hook: b.Hook, UID: uid})
	if err != nil {
		return plugin{}, err
	}
	return plugin{Process: a.Process, socket: a.Registration(), ready: a.Ready, metrics: metricsOf(a)}, nil
}

// null starts the null plugin.
func null(_ *bench, h *harness.Host, uid string) (plugin, error) {
	program, err := os.Executable()
	if err != nil {
		return plugin{}, err
	}
	process, err := harness.Start(h.Log(), exec.Command(program, floorCommand,
		"-kubeconfig="+h.Kubeconfig, "-node="+h.Name, "-plugin-dir="+h.Data(), "-registry-dir="+h.Registry(), "-uid="+uid))
	if err != nil {
		return plugin{}, err
	}
	return plugin{
		Process: process, socket: filepath.Join(h.Registry(), registration(h.Registry(), uid)),
		ready: func(context.Context) error { return process.Alive() },
	}, nil
}

// run starts a plugin on a new host and waits until kubelet is connected and the pool is published.
func (b *bench) run(ctx context.Context, k kind) (*harness.Host, plugin, *harness.Kubelet, error) {
	h, err := b.Host(ctx, "")
	if err != nil {
		return nil, plugin{}, nil, err
	}
	p, kubelet, err := b.runOn(ctx, k, h)
	return h, p, kubelet, err
}

func (b *bench) runOn(ctx context.Context, k kind, h *harness.Host) (plugin, *harness.Kubelet, error) {
	p, err := k(b, h, "pod")
	if err != nil {
		return plugin{}, nil, err
	}
	var kubelet *harness.Kubelet
	err = b.Await(ctx, h, "kubelet's connection", func(ctx context.Context) (err error) {
		if err := p.Alive(); err != nil {
			return err
		}
		kubelet, err = harness.Register(ctx, p.socket)
		return err
	})
	if err == nil {
		err = b.Await(ctx, h, "the published pool", func(ctx context.Context) error { _, err := h.Pool(ctx); return err })
	}
	if err != nil {
		p.Kill()
		return plugin{}, nil, err
	}
	return p, kubelet, nil
}
