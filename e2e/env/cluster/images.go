package cluster

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/tessera-gpu/tessera/deployments/images/bundle"
	"github.com/tessera-gpu/tessera/deployments/images/oci"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// ProbeImage contains the probe, the program of the suites.
const ProbeImage = "localhost/tessera/probe:dev"

// Images builds the images of the product, of the tests and of the examples from the repository and returns the archives. Processes that build images wait for each
// other; an archive is replaced as a whole, so that a lab can read it meanwhile.
func Images(ctx context.Context, progress io.Writer) ([]string, error) {
	unlock, err := lockImages()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return images(ctx, progress, bundle.Programs{}.Complete)
}

// InstallerImages builds the images for a cluster that the chart installs: all images of the product, those of the tests, of the examples and of the
// operands. Like Images, it waits for other processes.
func InstallerImages(ctx context.Context, progress io.Writer) ([]string, error) {
	unlock, err := lockImages()
	if err != nil {
		return nil, err
	}
	defer unlock()
	archives, err := images(ctx, progress, bundle.Programs{}.CompleteAll)
	if err != nil {
		return nil, err
	}
	archive, err := operands(ctx, filepath.Dir(archives[0]))
	if err != nil {
		return nil, fmt.Errorf("build the operands: %w", err)
	}
	return append(archives, archive), nil
}

// lockImages takes the lock of the folder into which images are built.
func lockImages() (unlock func(), err error) {
	cache, err := binaries.DefaultCache()
	if err != nil {
		return nil, err
	}
	return binaries.Lock(filepath.Join(cache, "images.lock"))
}

// images builds the images of the programs that complete compiles, of the probe and of the examples.
func images(ctx context.Context, progress io.Writer, complete func(ctx context.Context, source, folder string) (bundle.Programs, error)) ([]string, error) {
	fmt.Fprintln(progress, "building the images") //nolint:errcheck // progress is for the eye
	root, err := source()
	if err != nil {
		return nil, err
	}
	cache, err := binaries.DefaultCache()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(cache, "images")
	programs, err := complete(ctx, root, folder)
	if err != nil {
		return nil, err
	}
	archives, err := bundle.Write(ctx, folder, programs)
	if err != nil {
		return nil, fmt.Errorf("build the images: %w", err)
	}
	program, err := compileProbe(ctx, folder)
	if err != nil {
		return nil, err
	}
	probe, err := probeImage(ctx, folder, program)
	if err != nil {
		return nil, fmt.Errorf("build the probe's image: %w", err)
	}
	public, err := publicImages(ctx, folder, program)
	if err != nil {
		return nil, fmt.Errorf("build the images of the examples: %w", err)
	}
	return append(archives, probe, public), nil
}

// probeImage builds the image of the probe.
func probeImage(ctx context.Context, folder, program string) (string, error) {
	base, err := bundle.NewBase(ctx)
	if err != nil {
		return "", err
	}
	archive := filepath.Join(folder, "probe.tar")
	return archive, oci.WriteArchive(archive, base.Image(ProbeImage, oci.File{Path: "/usr/bin/probe", Source: program}))
}

// compileProbe compiles the probe, linked to the C library only, into a folder.
func compileProbe(ctx context.Context, folder string) (string, error) {
	dir, err := source("e2e", "env", "probe")
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		return "", err
	}
	program := filepath.Join(folder, "probe")
	args := append([]string{"-O2", "-Wall", "-Werror", "-o", program}, files...)
	if output, err := exec.CommandContext(ctx, "gcc", append(args, "-ldl")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the probe: %w\n%s", err, output)
	}
	return program, nil
}
