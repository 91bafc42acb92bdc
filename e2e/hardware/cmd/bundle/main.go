// bundle builds the archive for one run on a machine with a GPU: the agent, the probes, an API server, runc, a root file system without a driver, and the
// script that runs them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

func main() {
	out := flag.String("out", ".hw/hardware-bundle.tar.xz", "path of the archive")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := build(ctx, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

func build(ctx context.Context, out string) error {
	dir, err := os.MkdirTemp("", "hardware-bundle")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary files
	source, err := binaries.Source()
	if err != nil {
		return err
	}
	b := bundle{dir: dir, source: source}
	if err := errors.Join(b.programs(ctx), b.rootfs(ctx), b.functions(), b.copy(filepath.Join(source, "e2e/hardware/run.sh"), "run.sh")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := run(ctx, "", "tar", "-C", dir, "-cJf", out, "."); err != nil {
		return err
	}
	info, err := os.Stat(out)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d MiB\non the machine, as root: mkdir hardware && tar -xJf %s -C hardware && hardware/run.sh [root of the driver's files]\n",
		out, (info.Size()+1<<20-1)>>20, filepath.Base(out))
	return nil
}

// bundle is the folder that is packed.
type bundle struct{ dir, source string }

func (b bundle) programs(ctx context.Context) error {
	const stripped = "-ldflags=-s -w"
	program := func(name string) string { return filepath.Join(b.dir, "bin", name) }
	cluster, err := harness.ClusterPrograms(ctx)
	if err != nil {
		return err
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("install runc: %w", err)
	}
	return errors.Join(
		harness.Build(ctx, program("tessera-node"), stripped, "-tags=grpcnotrace", "./cmd/tessera-node"),
		harness.Build(ctx, program("tessera-hook"), stripped, "./cmd/tessera-hook"),
		harness.Build(ctx, program("nvmlprobe"), stripped, "./e2e/hardware/cmd/nvmlprobe"),
		harness.Build(ctx, program("agentprobe"), stripped, "./e2e/hardware/cmd/agentprobe"),
		run(ctx, filepath.Join(b.source, "e2e/tests/oracle"), "go", "test", "-c", stripped, "-o", program("oracle.test"), "."),
		run(ctx, b.source, "gcc", "-O1", "-s", "-o", program("cudaclient"), "e2e/fake/fakegpu/testdata/cuda_client.c", "-ldl"),
		b.copy(filepath.Join(cluster[binaries.Etcd], "etcd"), "bin/etcd"),
		b.copy(filepath.Join(cluster[binaries.Kubernetes], "kube-apiserver"), "bin/kube-apiserver"),
		b.copy(runc, "bin/runc"),
	)
}

// sharedLibrary is a line of ldd.
var sharedLibrary = regexp.MustCompile(`(/\S+/)(\S+) \(0x`)

// rootfs makes the root of a container with two programs and the C library of this machine, and nothing of a driver.
func (b bundle) rootfs(ctx context.Context) error {
	var errs []error
	for _, folder := range []string{"dev", "etc", "proc", "run", "sys", "tmp"} {
		errs = append(errs, os.MkdirAll(filepath.Join(b.dir, "rootfs", folder), 0o755))
	}
	needed := []string{filepath.Join(b.dir, "bin/cudaclient"), filepath.Join(b.dir, "bin/tessera-node")}
	listed, err := exec.CommandContext(ctx, "ldd", needed...).Output()
	if err != nil {
		return fmt.Errorf("ldd: %w", err)
	}
	for _, match := range sharedLibrary.FindAllStringSubmatch(string(listed), -1) {
		errs = append(errs, b.copy(match[1]+match[2], filepath.Join("rootfs", match[1], match[2])))
	}
	// The driver's libraries need these too.
	for _, name := range []string{"libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1"} {
		found, err := filepath.Glob("/lib/*-linux-gnu/" + name)
		for _, path := range found {
			errs = append(errs, b.copy(path, filepath.Join("rootfs", path)))
		}
		errs = append(errs, err)
	}
	for _, path := range needed {
		errs = append(errs, os.MkdirAll(filepath.Join(b.dir, "rootfs/bin"), 0o755), os.Link(path, filepath.Join(b.dir, "rootfs/bin", filepath.Base(path))))
	}
	return errors.Join(errs...)
}

// functions writes the names of the functions to which the agent's binding refers.
func (b bundle) functions() error {
	text, err := os.ReadFile(filepath.Join(b.source, "dra-driver/nvml/symbols.h"))
	if err != nil {
		return err
	}
	var names strings.Builder
	for _, match := range regexp.MustCompile(`(?m)^FORWARD\((\w+)\)`).FindAllStringSubmatch(string(text), -1) {
		fmt.Fprintln(&names, match[1])
	}
	return os.WriteFile(filepath.Join(b.dir, "functions.txt"), []byte(names.String()), 0o644)
}

// copy copies a file with its permissions to a path in the bundle.
func (b bundle) copy(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	path := filepath.Join(b.dir, to)
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, info.Mode().Perm()))
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
