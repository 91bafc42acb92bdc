package lab

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// Upgrade restarts the control plane with the programs of another minor version of Kubernetes, one of binaries.KubernetesVersions, and returns when they are
// ready. The nodes keep their programs until Node.Upgrade. No other method may be called meanwhile. In a lab whose control plane runs kube-scheduler, that
// remains so.
func (l *Lab) Upgrade(ctx context.Context, kubernetes string) error {
	l.say("restarting the control plane with Kubernetes %s", kubernetes)
	if err := l.replaceKubernetes(ctx, recipe.ControlPlaneName, kubernetes); err != nil {
		return err
	}
	spec, err := l.loadSpec(recipe.ControlPlaneName)
	if err != nil {
		return err
	}
	m := l.controlPlane()
	if err := m.Shutdown(ctx); err != nil {
		return fmt.Errorf("stop the control plane: %w", err)
	}
	if err := m.Boot(ctx, l.guest(), spec); err != nil {
		return err
	}
	l.state.Kubernetes = kubernetes
	if err := l.state.save(l.folder); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := m.Wait(ctx); err != nil {
		return fmt.Errorf("wait for the control plane with Kubernetes %s: %w; logs are below %s", kubernetes, err, m.Logs())
	}
	return nil
}

// Upgrade reboots the node with the kubelet and kube-proxy of the control plane's version, and returns when it is Ready.
func (n *Node) Upgrade(ctx context.Context) error {
	if n.lab.state.Nodes[n.index].Virtual {
		return fmt.Errorf("upgrade %s: the disk of a virtual machine has a copy of the programs", n.name)
	}
	if err := n.lab.replaceKubernetes(ctx, n.name, n.lab.Kubernetes()); err != nil {
		return err
	}
	return n.Reboot(ctx)
}

// replaceKubernetes gives a machine the programs of a minor version from its next boot on. It builds them if they are missing.
func (l *Lab) replaceKubernetes(ctx context.Context, name, version string) error {
	builder, err := binaries.NewBuilder(l.state.Cache, l.progress)
	if err != nil {
		return err
	}
	folder, err := builder.BuildKubernetes(ctx, version)
	if err != nil {
		return err
	}
	spec, err := l.loadSpec(name)
	if err != nil {
		return err
	}
	for i, mount := range spec.Mounts {
		if mount.Target == filepath.Join(recipe.Binaries, binaries.Kubernetes) {
			spec.Mounts[i].Source = folder
		}
	}
	return l.saveSpec(spec)
}
