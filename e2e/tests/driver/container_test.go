package driver

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/runc"
	"github.com/tessera-gpu/tessera/kubelet-plugin/cdi"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// program is a CUDA program as a container has it: it finds the driver by the name of its library only. It prints its environment, every file of the
// container, where the linker has found the driver, and what cuInit returns.
const program = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <ftw.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
static int file(const char *path, const struct stat *s, int type, struct FTW *f)
{
	if (type != FTW_D && strncmp(path, "/proc/", 6))
		printf("file %s\n", path);
	return 0;
}
int main(int count, char **arguments, char **environment)
{
	for (; *environment; environment++)
		printf("environment %s\n", *environment);
	nftw("/", file, 16, FTW_PHYS);
	struct link_map *map;
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	if (!cuda)
		return 0;
	dlinfo(cuda, RTLD_DI_LINKMAP, &map);
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
	printf("found %s\ncuInit %d\n", map->l_name, init(0));
	return 0;
}`

// TestNVIDIAsFilesInAContainer starts containers under the real runc with the CDI spec of a GPU and the driver's files: a program finds CUDA through the
// linker's cache, CUDA and nvidia-smi answer as without a kernel module, and nothing is in the container but the image and what the spec names.
func TestNVIDIAsFilesInAContainer(t *testing.T) {
	Each(t, func(t *testing.T, root Root) {
		_, roots := host(t, root)
		top := t.TempDir()
		hook := filepath.Join(top, "tessera-hook")
		must(t, harness.Build(t.Context(), hook, "./cmd/tessera-hook"))
		stage := runc.Stage{Image: filepath.Join(top, "image"), Dir: filepath.Join(top, "driver-"+root.Version)}
		must(t, runc.BuildImage(t.Context(), stage.Image, program, filepath.Join(root.Path, "usr/lib/nvidia/current/nvidia-smi")))
		spec := withGPU(t, cdi.Config{Dir: filepath.Join(top, "cdi"), Roots: roots, Hook: hook, Leads: func() bool { return true }})
		run := func(spec oci.Spec, status int, args ...string) string {
			t.Helper()
			result, err := stage.Run(t.Context(), spec, args...)
			must(t, err)
			if result.Status != status {
				t.Fatalf("%v: got status %d, want %d\n%s", args, result.Status, status, result.Output)
			}
			return result.Output
		}
		plain := strings.Split(run(runc.Spec(), 0, "/program"), "\n")
		var got []string
		for line := range strings.Lines(run(spec, 0, "/program")) {
			if line = strings.TrimSpace(line); !slices.Contains(plain, line) {
				got = append(got, line)
			}
		}
		driver, err := driverroot.Scan(roots)
		must(t, err)
		want := []string{
			"environment NVIDIA_VISIBLE_DEVICES=void", "file /dev/nvidia0", "file /etc/ld.so.cache", "file /etc/ld.so.conf",
			"file /etc/ld.so.conf.d/00-tessera-driver.conf", "file /var/run/nvidia-container-devices/void",
			"found /usr/lib/x86_64-linux-gnu/libcuda.so.1", fmt.Sprintf("cuInit %d", noDevice),
		}
		for _, node := range driver.Control {
			want = append(want, "file "+node.Path)
		}
		for _, given := range slices.Concat(driver.Libraries, driver.Programs, driver.Firmware, driver.Settings) {
			want = append(want, "file "+given.Path)
		}
		for _, link := range driver.Links {
			want = append(want, "file "+link.Path)
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in the container with a GPU and not in one without (-want +got):\n%s", diff)
		}
		const failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
		if output := run(spec, driverNotLoaded, "/usr/bin/nvidia-smi"); !strings.HasPrefix(output, failed) {
			t.Errorf("nvidia-smi: %q, want %q", output, failed)
		}
	})
}

// noDevice is CUDA_ERROR_NO_DEVICE (cuda.h), driverNotLoaded the status of nvidia-smi without a kernel module (nvidia-smi(1), RETURN VALUE).
const (
	noDevice        = 100
	driverNotLoaded = 9
)

// withGPU returns a container with the machine's first GPU, as container runtimes make it of our CDI specs.
func withGPU(t *testing.T, config cdi.Config) oci.Spec {
	t.Helper()
	g := gputest.Node(t, "h100x2").GPUs[0]
	ids, err := cdi.New(config).Write("claim", []prepare.Prepared{{
		Result: prepare.Result{Device: g.Name()}, Use: gpu.Device{GPU: g.Name(), Use: gpu.Use{Shape: gpu.Whole}}, GPU: g,
	}})
	must(t, err)
	spec := runc.Spec()
	must(t, runc.Inject(&spec, config.Dir, ids[0]...))
	return spec
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
