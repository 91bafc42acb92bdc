package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/runc"
)

// files are the programs of a run and its folders.
type files struct {
	// programs has tessera-node, tessera-hook, etcd, kube-apiserver and runc. rootfs is the container's, without files of the driver.
	programs, rootfs string
	// out receives the results, dir is the folder of everything else.
	out, dir string
}

func (f files) program(name string) string { return filepath.Join(f.programs, name) }

func claimCommand(roots *v1alpha1.Roots) *cobra.Command {
	var f files
	cmd := &cobra.Command{
		Use: "claim -- COMMAND...", Short: "Prepare a claim for the first GPU with the agent, and run the command in a container with only what its CDI spec has",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return claim(cmd.Context(), *roots, f, args) },
	}
	cmd.Flags().StringVar(&f.programs, "programs", "", "folder with tessera-node, tessera-hook, etcd, kube-apiserver and runc")
	cmd.Flags().StringVar(&f.rootfs, "rootfs", "", "root file system of the container")
	cmd.Flags().StringVar(&f.out, "out", "", "folder of the results")
	return cmd
}

func claim(ctx context.Context, roots v1alpha1.Roots, f files, command []string) (err error) {
	var node gpu.Node
	err = withSession(ctx, roots, func(s *nvml.Session) error {
		node, err = s.Read(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if len(node.GPUs) == 0 {
		return errNoGPU
	}
	node.Name = "hardware"
	if f.dir, err = os.MkdirTemp("", "hw"); err != nil { // short, for sockets
		return err
	}
	defer os.RemoveAll(f.dir) //nolint:errcheck // temporary files
	plane, err := harness.StartPlane(ctx, f.dir, binaries.Folders{binaries.Etcd: f.programs, binaries.Kubernetes: f.programs})
	if err != nil {
		return err
	}
	defer plane.Stop()
	host, err := harness.NewHostOf(ctx, plane, f.dir, node, roots)
	if err != nil {
		return err
	}
	began := time.Now()
	agent, err := host.Start(harness.Launch{Program: f.program("tessera-node"), Hook: f.program("tessera-hook"), UID: "agent", Verbosity: 2})
	if err != nil {
		return err
	}
	defer agent.Kill()
	defer func() { err = errors.Join(err, f.keep(host.Log())) }()
	return prepared(ctx, f, host, agent, began, command)
}

// result is what the run measured.
type result struct {
	PublishedMillis int64
	Slices          []resourceapi.ResourceSlice
	Prepare         durations
	Unprepare       durations
	Devices         []*drapb.Device
	Container       string
	ExitCode        int
	RunMillis       int64
}

// prepared waits for the agent, measures a claim, and runs the command with it.
func prepared(ctx context.Context, f files, host *harness.Host, agent *harness.Agent, began time.Time, command []string) error {
	var r result
	var kubelet *harness.Kubelet
	err := harness.Poll(ctx, func(ctx context.Context) (err error) {
		kubelet, err = agent.Register(ctx)
		return err
	})
	if err != nil {
		return err
	}
	defer kubelet.Close()
	err = harness.Poll(ctx, func(ctx context.Context) (err error) {
		r.Slices, err = host.Pool(ctx)
		return err
	})
	if err != nil {
		return err
	}
	r.PublishedMillis = time.Since(began).Milliseconds()
	object, err := host.Claim(ctx, "whole", []gpu.Device{host.Whole(0)})
	if err != nil {
		return err
	}
	var prepares, unprepares []time.Duration
	for range 20 {
		began := time.Now()
		if r.Devices, err = kubelet.Prepare(ctx, object); err != nil {
			return err
		}
		prepares, began = append(prepares, time.Since(began)), time.Now()
		if len(prepares) == 20 {
			break
		}
		if err := kubelet.Unprepare(ctx, object); err != nil {
			return err
		}
		unprepares = append(unprepares, time.Since(began))
	}
	r.Prepare, r.Unprepare = summarize(prepares), summarize(unprepares)
	began = time.Now()
	if err := f.run(ctx, host.CDI(), r.Devices, command, &r); err != nil {
		return err
	}
	r.RunMillis = time.Since(began).Milliseconds()
	return errors.Join(kubelet.Unprepare(ctx, object), printJSON(r))
}

// run runs the command in a container with the devices.
func (f files) run(ctx context.Context, specs string, devices []*drapb.Device, command []string, r *result) error {
	bundle := filepath.Join(f.dir, "container")
	path := filepath.Join(bundle, "config.json")
	if err := f.configure(ctx, bundle, path, command, func(spec *oci.Spec) error { return inject(spec, specs, devices) }); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(specs, "*"))
	for _, file := range append(found, path) {
		err = errors.Join(err, f.keep(file))
	}
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, f.program("runc"), "run", "--bundle", bundle, "hardware").CombinedOutput()
	r.Container = string(out)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		r.ExitCode, err = exit.ExitCode(), nil
	}
	return err
}

// configure makes the folder of a container with runc's configuration, which edit changes, at the path.
func (f files) configure(ctx context.Context, bundle, path string, command []string, edit func(*oci.Spec) error) error {
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, f.program("runc"), "spec", "--bundle", bundle).CombinedOutput(); err != nil {
		return fmt.Errorf("runc spec: %w: %s", err, out)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec oci.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	spec.Root = &oci.Root{Path: f.rootfs}
	spec.Process.Terminal, spec.Process.Args = false, command
	if err := edit(&spec); err != nil {
		return err
	}
	if text, err = json.MarshalIndent(spec, "", " "); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// inject adds what the CDI specs in the folder have for the devices, as container runtimes do.
func inject(spec *oci.Spec, specs string, devices []*drapb.Device) error {
	var ids []string
	for _, device := range devices {
		ids = append(ids, device.GetCdiDeviceIds()...)
	}
	return runc.Inject(spec, specs, ids...)
}

// keep copies a file to the results.
func (f files) keep(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.out, "claim-"+filepath.Base(path)), content, 0o644)
}
