package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/deployments/images/bundle"
	"github.com/tessera-gpu/tessera/deployments/images/oci"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// Operands of a lab: small images of ours that simulate the externally visible behavior of NVIDIA's.
const (
	DriverImage   = "localhost/tessera/driver" // its tag is <version>-<os>, or <branch>-<kernel>-<os>
	GDSImage      = "localhost/tessera/nvidia-fs:dev"
	GDRCopyImage  = "localhost/tessera/gdrdrv:dev"
	DCGMImage     = "localhost/tessera/dcgm:dev"
	ExporterImage = "localhost/tessera/dcgm-exporter:dev"
	PluginImage   = "localhost/tessera/device-plugin:dev"
)

// Versions of the driver for which images exist.
const (
	OldDriver = "570.124.06"
	NewDriver = catalog.DriverVersion
)

// Tags of the operating systems for which driver images exist, and the default kernel of a machine, for which
// precompiled images exist.
const (
	Ubuntu22 = "ubuntu22.04"
	Ubuntu24 = "ubuntu24.04"
	Kernel   = "6.8.0-79-generic"
)

// operands builds all operand images into one archive.
func operands(ctx context.Context, folder string) (string, error) {
	base, err := bundle.NewBase(ctx)
	if err != nil {
		return "", err
	}
	b := operandBuilder{base: base, folder: filepath.Join(folder, "operands")}
	if err := os.MkdirAll(b.folder, 0o755); err != nil {
		return "", err
	}
	var images []oci.Image
	for _, build := range []func(context.Context) ([]oci.Image, error){b.drivers, b.monitoring, b.others} {
		made, err := build(ctx)
		if err != nil {
			return "", err
		}
		images = append(images, made...)
	}
	archive := filepath.Join(folder, "operands.tar")
	return archive, oci.WriteArchive(archive, images...)
}

type operandBuilder struct {
	base   bundle.Base
	folder string // folder of the compiled programs
}

// drivers returns the images of the driver and of its sidecars: one program, and the files of each version.
func (b operandBuilder) drivers(ctx context.Context) ([]oci.Image, error) {
	program, err := b.compile(ctx, "driver", "CGO_ENABLED=0")
	if err != nil {
		return nil, err
	}
	b.base.Layers = append(b.base.Layers, []oci.File{
		{Path: "/usr/bin/nvidia-driver", Source: program},
		{Path: "/usr/bin/nvidia-gds-driver", Link: "nvidia-driver"},
		{Path: "/usr/bin/nvidia-gdrcopy-driver", Link: "nvidia-driver"},
	})
	var images []oci.Image
	for _, version := range []string{OldDriver, NewDriver} {
		files, err := b.driverFiles(ctx, version)
		if err != nil {
			return nil, err
		}
		branch, _, _ := strings.Cut(version, ".")
		for _, tag := range []string{version + "-" + Ubuntu22, version + "-" + Ubuntu24, branch + "-" + Kernel + "-" + Ubuntu24} {
			image := b.base.Image(DriverImage+":"+tag, files...)
			image.Env = append(image.Env, "DRIVER_VERSION="+version)
			images = append(images, image)
		}
	}
	for _, os := range []string{Ubuntu22, Ubuntu24} {
		images = append(images, b.base.Image(GDSImage+"-"+os), b.base.Image(GDRCopyImage+"-"+os))
	}
	return images, nil
}

// driverFiles returns the files of a driver. The base's /lib is a link to /usr/lib.
func (b operandBuilder) driverFiles(ctx context.Context, version string) ([]oci.File, error) {
	root := filepath.Join(b.folder, "driver-"+version)
	if err := os.RemoveAll(root); err != nil {
		return nil, err
	}
	if err := fakegpu.WriteDriver(ctx, root, version); err != nil {
		return nil, fmt.Errorf("write driver %s: %w", version, err)
	}
	return oci.Tree(root, func(name string) string {
		if name == "lib" {
			return ""
		}
		if strings.HasPrefix(name, "lib/") {
			return path.Join("usr", name)
		}
		return name
	})
}

// monitoring returns DCGM's images: one program under two names.
func (b operandBuilder) monitoring(ctx context.Context) ([]oci.Image, error) {
	program, err := b.compile(ctx, "dcgm", "CGO_ENABLED=1")
	if err != nil {
		return nil, err
	}
	files := []oci.File{{Path: "/usr/bin/nv-hostengine", Source: program}, {Path: "/usr/bin/dcgm-exporter", Link: "nv-hostengine"}}
	engine, exporter := b.base.Image(DCGMImage, files...), b.base.Image(ExporterImage, files...)
	engine.Entrypoint = []string{"/usr/bin/nv-hostengine"}
	exporter.Entrypoint = []string{"/usr/bin/dcgm-exporter"}
	return []oci.Image{engine, exporter}, nil
}

// others returns the image of the classic device plugin.
func (b operandBuilder) others(ctx context.Context) ([]oci.Image, error) {
	plugin, err := b.compile(ctx, "plugin", "CGO_ENABLED=0")
	if err != nil {
		return nil, err
	}
	classic := b.base.Image(PluginImage, oci.File{Path: "/usr/bin/plugin", Source: plugin})
	classic.Entrypoint = []string{"/usr/bin/plugin"}
	return []oci.Image{classic}, nil
}

// compile builds a program of e2e/fake/operands and returns its path.
func (b operandBuilder) compile(ctx context.Context, name, cgo string) (string, error) {
	root, err := source()
	if err != nil {
		return "", err
	}
	program := filepath.Join(b.folder, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./e2e/fake/operands/"+name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), cgo)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the operand %s: %w\n%s", name, err, output)
	}
	return program, nil
}

// kernelProgram is the path, in the folder of a bare machine, of the program that simulates its kernel.
const kernelProgram = "bin/kernel"

// addKernel adds kernelProgram to a machine's folder, also as boot, which a virtual machine runs.
func addKernel(ctx context.Context, folder string) error {
	root, err := source()
	if err != nil {
		return err
	}
	program := filepath.Join(folder, kernelProgram)
	if err := binaries.Compile(ctx, root, "./e2e/fake/operands/kernel", program); err != nil {
		return err
	}
	return os.Symlink(filepath.Base(program), filepath.Join(filepath.Dir(program), "boot"))
}
