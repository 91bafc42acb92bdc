package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scratch"
	"github.com/tessera-gpu/tessera/e2e/harness"
)

// machine is the node of every row.
const machine = "h100x8"

// patience is how long anything may take that is waited for.
const patience = 2 * time.Minute

// bench is one run.
type bench struct {
	*report.Report
	options
	folder      scratch.Folder
	plane       *harness.Plane
	agent, hook string
	hosts       int
}

// host makes a new host; its machine has its files.
func (b *bench) host(ctx context.Context) (*harness.Host, error) {
	b.hosts++
	name := fmt.Sprintf("bench-%d", b.hosts)
	dir, err := b.folder.Sub(fmt.Sprint(b.hosts))
	if err != nil {
		return nil, err
	}
	h, err := harness.NewHost(ctx, b.plane, dir, name, machine)
	if err != nil {
		return nil, err
	}
	return h, h.Install(ctx, machine)
}

// plugin is a running plugin: our agent, or the one that does nothing.
type plugin struct {
	*harness.Process
	socket string
	// ready returns why the plugin should not replace another yet.
	ready func(context.Context) error
	// metrics reads what the plugin tells about itself; nil for one that tells nothing.
	metrics func(context.Context) (string, error)
}

// kind is a plugin that can be started on a host, with the UID of its pod.
type kind func(b *bench, h *harness.Host, uid string) (plugin, error)

// ours starts the agent.
func ours(b *bench, h *harness.Host, uid string) (plugin, error) {
	a, err := h.Start(harness.Launch{Program: b.agent, Hook: b.hook, UID: uid})
	if err != nil {
		return plugin{}, err
	}
	return plugin{Process: a.Process, socket: a.Registration(), ready: a.Ready, metrics: metricsOf(a)}, nil
}

// theirs starts the plugin that does nothing.
func theirs(_ *bench, h *harness.Host, uid string) (plugin, error) {
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
	h, err := b.host(ctx)
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
	err = b.await(ctx, h, "kubelet's connection", func(ctx context.Context) (err error) {
		if err := p.Alive(); err != nil {
			return err
		}
		kubelet, err = harness.Register(ctx, p.socket)
		return err
	})
	if err == nil {
		err = b.await(ctx, h, "the published pool", func(ctx context.Context) error { _, err := h.Pool(ctx); return err })
	}
	if err != nil {
		p.Kill()
		return plugin{}, nil, err
	}
	return p, kubelet, nil
}

// await waits for something on the host; an error shows what the plugin said last.
func (b *bench) await(ctx context.Context, h *harness.Host, what string, try func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := harness.Poll(limited, try)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("wait for %s: %w\n%s", what, err, tail(h.Log()))
	}
	return err
}

// tail returns the end of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}
