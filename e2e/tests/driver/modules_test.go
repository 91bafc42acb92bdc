package driver

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/driverimage"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/tests/contract"
	"github.com/tessera-gpu/tessera/e2e/tests/contract/machine"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// built is an image of make test-modules, unpacked.
type built struct {
	// version is the driver's, kernel that of a precompiled image and otherwise empty, root the folder of its files.
	version, kernel, root string
	reference             string
	config                v1.Config
}

// eachImage runs the test with every image that make test-modules has built, as a subtest with the version and the kernel.
func eachImage(t *testing.T, precompiled bool, test func(t *testing.T, image built)) {
	t.Helper()
	archives := strings.Fields(os.Getenv("TESSERA_DRIVER_IMAGES"))
	if len(archives) == 0 {
		t.Skip("NVIDIA's modules are not in the repository: make test-modules compiles them")
	}
	ran := false
	for i := 0; i+1 < len(archives); i += 2 { // archive and reference
		tag := strings.TrimSuffix(strings.TrimPrefix(archives[i+1], driverimage.Name+":"), "-"+driverimage.Host)
		_, kernel, isPrecompiled := strings.Cut(tag, "-")
		if isPrecompiled != precompiled {
			continue
		}
		image := unpack(t, archives[i])
		image.kernel, image.reference, ran = kernel, archives[i+1], true
		t.Run(image.version, func(t *testing.T) { test(t, image) })
	}
	if !ran {
		t.Fatalf("no such image in %v", archives)
	}
}

// unpack unpacks an OCI archive with one image, whose layers are not compressed.
func unpack(t *testing.T, archive string) built {
	t.Helper()
	top, err := os.MkdirTemp(filepath.Dir(archive), "unpacked-") // the temporary folder may be in memory
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	image := built{root: filepath.Join(top, "root")}
	must(t, os.Mkdir(image.root, 0o755))
	untar(t, archive, top)
	blob := func(digest v1.Hash) string { return filepath.Join(top, "blobs", digest.Algorithm, digest.Hex) }
	var index v1.IndexManifest
	var manifest v1.Manifest
	var config v1.ConfigFile
	read(t, filepath.Join(top, "index.json"), &index)
	read(t, blob(index.Manifests[0].Digest), &manifest)
	read(t, blob(manifest.Config.Digest), &config)
	for _, layer := range manifest.Layers {
		untar(t, blob(layer.Digest), image.root)
		must(t, os.Remove(blob(layer.Digest)))
	}
	image.config = config.Config
	for _, e := range config.Config.Env {
		if version, found := strings.CutPrefix(e, "DRIVER_VERSION="); found {
			image.version = version
		}
	}
	return image
}

func untar(t *testing.T, archive, folder string) {
	t.Helper()
	if text, err := exec.CommandContext(t.Context(), "tar", "--no-same-owner", "-C", folder, "-xf", archive).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v: %s", archive, err, text)
	}
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, json.Unmarshal(text, into))
}

// types are the types of modules in a precompiled image.
func (b built) types(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.root, "opt/nvidia/modules", b.kernel))
	must(t, err)
	var types []string
	for _, entry := range entries {
		types = append(types, entry.Name())
	}
	if len(types) == 0 {
		t.Fatal("the image has no modules")
	}
	return types
}

// TestModulesAreThoseOfTheKernel reads the modules of precompiled images as modinfo(8) does: version, kernel, license, the modules they need, and
// firmware, which the image has.
func TestModulesAreThoseOfTheKernel(t *testing.T) {
	eachImage(t, true, func(t *testing.T, image built) {
		for _, kind := range image.types(t) {
			licenses := map[string]string{
				"proprietary nvidia": "NVIDIA", "proprietary nvidia-modeset": "NVIDIA", "proprietary nvidia-peermem": "Linux-OpenIB", "open nvidia-peermem": "Dual BSD/GPL",
			}
			for _, name := range driverimage.Modules() {
				info := modinfo(t, filepath.Join(image.root, "opt/nvidia/modules", image.kernel, kind, name+".ko"))
				one := func(key string) string { return strings.Join(info[key], " ") }
				if got, want := one("license"), cmp.Or(licenses[kind+" "+name], "Dual MIT/GPL"); got != want {
					t.Errorf("%s %s: license %q, want %q", kind, name, got, want)
				}
				if one("version") != image.version || !strings.HasPrefix(one("vermagic"), image.kernel+" SMP ") || one("name") != strings.ReplaceAll(name, "-", "_") {
					t.Errorf("%s %s: version %q, vermagic %q, name %q", kind, name, one("version"), one("vermagic"), one("name"))
				}
				needs := name == "nvidia-uvm" || name == "nvidia-modeset" // nvidia-peermem is compiled without a network driver
				if slices.Contains(strings.Split(one("depends"), ","), "nvidia") != needs {
					t.Errorf("%s %s depends on %q", kind, name, one("depends"))
				}
				if name == "nvidia" && len(info["firmware"]) < 2 {
					t.Errorf("%s: the firmware is %v", kind, info["firmware"])
				}
				for _, file := range info["firmware"] {
					if _, err := os.Stat(filepath.Join(image.root, "opt/nvidia/firmware", strings.TrimPrefix(file, "nvidia/"))); err != nil {
						t.Errorf("%s %s: %v", kind, name, err)
					}
				}
			}
		}
	})
}

// modinfo returns the fields of a module.
func modinfo(t *testing.T, path string) map[string][]string {
	t.Helper()
	file, err := elf.Open(path)
	must(t, err)
	defer file.Close() //nolint:errcheck // opened for reading
	section := file.Section(".modinfo")
	if section == nil {
		t.Fatalf("%s is not a kernel module", path)
	}
	text, err := section.Data()
	must(t, err)
	info := map[string][]string{}
	for field := range bytes.SplitSeq(text, []byte{0}) {
		if key, value, found := strings.Cut(string(field), "="); found {
			info[key] = append(info[key], value)
		}
	}
	return info
}

// TestModulesInTheDriverPod starts the rendered driver pod with precompiled images, whose files are real, on a simulated machine with the kernel: the pod
// becomes ready with each type of modules. Without a GPU the installer reports modprobe's error and what to do. The recorder loads a module as the
// kernel does: only one that is compiled for it.
func TestModulesInTheDriverPod(t *testing.T) {
	recorder := filepath.Join(t.TempDir(), "recorder")
	eachImage(t, true, func(t *testing.T, image built) {
		t.Setenv("CGO_ENABLED", "0")
		must(t, harness.Build(t.Context(), recorder, "./e2e/tests/contract/recorder"))
		must(t, os.WriteFile(filepath.Join(image.root, "usr/lib/nvidia/version"), []byte(image.version), 0o644)) // of the recorder's nvidia-smi
		recorded, err := machine.RecordImage(image.root, recorder)
		must(t, err)
		recorded.Env = image.config.Env
		for _, kind := range image.types(t) {
			t.Run(kind, func(t *testing.T) {
				node, pod := startPod(t, recorder, image, recorded, kind, nil)
				must(t, pod.Wait(time.Minute))
				if got := node.Read("/sys/module/nvidia/version"); got != image.version || len(node.Modules()) != 3 {
					t.Errorf("version %q and the modules %v are loaded", got, node.Modules())
				}
				dependencies, err := pod.Exec(render.DriverContainer, "grep", "^updates/nvidia-uvm.ko: updates/nvidia.ko", "/lib/modules/"+image.kernel+"/modules.dep")
				if err != nil {
					t.Errorf("depmod did not find the modules: %v: %s", err, dependencies)
				}
				if ended, err := pod.Stop(); err != nil || !ended[render.DriverContainer] || len(node.Modules()) > 0 {
					t.Errorf("the container ends by itself: %t, %v; modules: %v", ended[render.DriverContainer], err, node.Modules())
				}
			})
			for name, test := range map[string]struct{ file, reason, message string }{
				"no GPU": {"sys/bus/pci/devices/0000:3b:00.0/vendor", phase.ReasonNoSupportedGPU,
					"modprobe: ERROR: could not insert 'nvidia': No such device; no GPU that this driver supports is on the PCI bus"},
				"another kernel": {"proc/sys/kernel/osrelease", "Error", "this image has no sources, and " + kind + " modules only for kernel " + image.kernel},
			} {
				t.Run(kind+" "+name, func(t *testing.T) {
					_, pod := startPod(t, recorder, image, recorded, kind, map[string]string{test.file: "6.1.0-1-cloud-amd64\n"})
					select {
					case <-pod.Done(render.DriverContainer):
					case <-time.After(time.Minute):
						t.Fatalf("the container prints: %s", pod.Output(render.DriverContainer))
					}
					got := nodestate.ObservePod(pod.Failure(render.DriverContainer))
					if want := "container nvidia-driver-ctr exited with code 1: " + test.message; got.Reason != test.reason || !strings.HasPrefix(got.Message, want) {
						t.Errorf("the pod is %s: %s, want %s: %s", got.Reason, got.Message, test.reason, want)
					}
				})
			}
		}
	})
}

// startPod starts the driver container that the installer renders for a machine with the kernel of an image.
func startPod(t *testing.T, recorder string, image built, recorded machine.Image, kind string, files map[string]string) (*machine.Machine, *machine.Pod) {
	t.Helper()
	node, err := machine.Start(t.TempDir(), recorder, machine.Spec{OS: "ID=debian\nVERSION_ID=12\n", Kernel: image.kernel, Files: files})
	must(t, err)
	t.Cleanup(func() { must(t, node.Stop()) })
	branch, _, _ := strings.Cut(image.version, ".")
	spec, err := contract.DriverPod(render.DriverSet{
		Owner: "ClusterPolicy/default", Host: render.Host{OS: driverimage.Host, Kernel: image.kernel},
		Spec: v1alpha1.DriverSpec{
			Component: v1alpha1.Component{Image: driverimage.Name}, Version: branch, UsePrecompiled: true, KernelModuleType: v1alpha1.KernelModuleType(kind),
		},
	}, nil)
	must(t, err)
	pod := node.NewPod(spec, machine.Images{image.reference: recorded}, nil)
	must(t, pod.Start())
	return node, pod
}

// TestModulesCompileInAnImage: the images that compile have the sources of both types with the recipe of the packages, and what compiles them. The
// precompiled images have been compiled in these files.
func TestModulesCompileInAnImage(t *testing.T) {
	eachImage(t, false, func(t *testing.T, image built) {
		for _, path := range []string{"usr/src/nvidia-current-" + image.version + "/dkms.conf", "usr/src/nvidia-current-open-" + image.version + "/dkms.conf", "usr/bin/apt-get"} {
			if _, err := os.Stat(filepath.Join(image.root, path)); err != nil {
				t.Error(err)
			}
		}
		for _, program := range [][]string{
			{"gcc-12", "--version"}, {"make", "--version"}, {"strip", "--version"}, {"findmnt", "--version"}, {"flock", "--version"}, {"nvidia-persistenced", "--version"},
		} {
			c := exec.CommandContext(t.Context(), "chroot", append([]string{image.root}, program...)...)
			c.Env = image.config.Env
			if text, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %v: %s", program, err, text)
			}
		}
	})
}
