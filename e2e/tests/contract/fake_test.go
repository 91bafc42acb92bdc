package contract_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/tests/contract"
	"github.com/tessera-gpu/tessera/e2e/tests/contract/machine"
)

// model is the image whose behavior the fake driver has.
const model = "ubuntu24.04"

// fake is a machine with the fake driver's containers.
type fake struct {
	t       *testing.T
	machine *machine.Machine
	image   machine.Image
	// gpus is the folder of its simulated hardware.
	gpus string
}

const version = catalog.DriverVersion

func newFake(t *testing.T) *fake {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts file systems: needs root")
	}
	folder, programs := t.TempDir(), t.TempDir()
	for name, source := range map[string]string{"recorder": "./recorder", "driver": "../../fake/operands/driver"} {
		c := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(programs, name), source)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", name, err, text)
		}
	}
	f := &fake{t: t, gpus: filepath.Join(folder, "run/fakegpu")}
	if err := fakegpu.Install(t.Context(), f.gpus, fakegpu.Spec{Machine: "h100x8", Bare: true, DriverVersion: version}); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.image, err = machine.BuildImage(filepath.Join(programs, "image"), filepath.Join(programs, "recorder"), false); err != nil {
		t.Fatal(err)
	}
	if err := machine.InstallProgram(f.image, filepath.Join(programs, "driver"), "/usr/bin/nvidia-driver"); err != nil {
		t.Fatal(err)
	}
	if err := fakegpu.WriteDriver(t.Context(), f.image.Folder, version); err != nil {
		t.Fatal(err)
	}
	f.image.Env = []string{"DRIVER_VERSION=" + version}
	if f.machine, err = machine.Start(folder, filepath.Join(programs, "recorder"), machine.Spec{OS: "ID=ubuntu\nVERSION_ID=24.04\n", Kernel: "6.8.0-60-generic"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.machine.Stop(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// pod returns a pod with one container of the fake driver, with the mounts that it needs of the rendered ones.
func (f *fake) pod(command string, env ...corev1.EnvVar) *machine.Pod {
	volume := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectoryOrCreate)}}}
	}
	return f.machine.NewPod(corev1.PodSpec{
		HostPID: true, TerminationGracePeriodSeconds: new(int64(60)),
		Containers: []corev1.Container{{
			Name: "driver", Image: "driver", Command: []string{"nvidia-driver"}, Args: []string{command}, Env: env,
			SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "nvidia", MountPath: "/run/nvidia", MountPropagation: new(corev1.MountPropagationBidirectional)},
				{Name: "mellanox", MountPath: "/run/mellanox/drivers", MountPropagation: new(corev1.MountPropagationHostToContainer)},
			},
		}},
		Volumes: []corev1.Volume{volume("nvidia", "/run/nvidia"), volume("mellanox", "/run/mellanox/drivers")},
	}, machine.Images{"driver": f.image}, nil)
}

// until waits for a line of the container's output, and returns the steps since the last call.
func (f *fake) until(pod *machine.Pod, line string) []string {
	f.t.Helper()
	tick, end := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !strings.Contains(pod.Output("driver"), line) {
		select {
		case <-tick.C:
			if !pod.Ended("driver") {
				continue
			}
		case <-end:
		}
		f.t.Fatalf("the container does not print %q: %s", line, pod.Output("driver"))
	}
	return steps(pod)
}

// steps are the steps that the fake driver prints when it has performed them.
func steps(pod *machine.Pod) []string {
	var all []string
	for line := range strings.Lines(pod.Output("driver")) {
		if step, ok := strings.CutPrefix(strings.TrimSpace(line), "+ "); ok {
			all = append(all, step)
		}
	}
	return all
}

func digest(value string) corev1.EnvVar {
	return corev1.EnvVar{Name: "DRIVER_CONFIG_DIGEST", Value: value}
}

const serving = "now waiting for signal"

// TestFakeDriverDoesWhatNVIDIAsImagesDo compares the steps of the fake driver with those of the table, in order, and what they leave on the machine.
func TestFakeDriverDoesWhatNVIDIAsImagesDo(t *testing.T) {
	images, err := contract.Table()
	if err != nil {
		t.Fatal(err)
	}
	want, found := contract.Find(images, model)
	if !found {
		t.Fatalf("the table has no %s", model)
	}
	f := newFake(t)
	vendor := filepath.Join(fakegpu.SysRoot(f.gpus), "bus/pci/devices/0000:5e:00.0")
	if err := os.MkdirAll(vendor, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(vendor, "vendor"), []byte("0x15b3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	env := []corev1.EnvVar{digest("one"), {Name: "GPU_DIRECT_RDMA_ENABLED", Value: "true"}}
	pod := f.pod("init", env...)
	if err := pod.Start(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contract.Visible(want.Install), f.until(pod, serving)); diff != "" {
		t.Errorf("installation: -NVIDIA +fake\n%s", diff)
	}
	for file, text := range map[string]string{
		"/run/nvidia/nvidia-driver.state": "one", "/run/nvidia/validations/.driver-daemons-status": "Ready",
	} {
		if got := f.machine.Read(file); got != text {
			t.Errorf("%s has %q, want %q", file, got, text)
		}
	}
	if !f.machine.Exists("/run/nvidia/driver/usr/bin/nvidia-smi") {
		t.Error("the machine does not see the driver's root")
	}
	if err := pod.Kill("driver"); err != nil {
		t.Fatal(err)
	}
	if err := pod.Restart("driver"); err != nil {
		t.Fatal(err)
	}
	// The digest is stored again with the same content, which cannot be observed.
	restart := slices.DeleteFunc(f.until(pod, serving), func(step string) bool { return strings.HasSuffix(step, ".state") })
	if diff := cmp.Diff(contract.Visible(want.Restart), restart); diff != "" {
		t.Errorf("restart: -NVIDIA +fake\n%s", diff)
	}
	before := len(steps(pod))
	if ended, err := pod.Stop(); err != nil || !ended["driver"] {
		t.Fatalf("the container ends by itself: %t, %v: %s", ended["driver"], err, pod.Output("driver"))
	}
	if diff := cmp.Diff(contract.Visible(want.Remove), steps(pod)[before:]); diff != "" {
		t.Errorf("removal: -NVIDIA +fake\n%s", diff)
	}
	if loaded, err := fakegpu.Modules(f.gpus); err != nil || len(loaded) > 0 || f.machine.Exists("/run/nvidia/driver/usr/bin/nvidia-smi") {
		t.Errorf("after removal the modules %v are loaded: %v", loaded, err)
	}
}

// TestFakePeermemWaits checks that the fake sidecar waits for the files for which NVIDIA's waits.
func TestFakePeermemWaits(t *testing.T) {
	images, err := contract.Table()
	if err != nil {
		t.Fatal(err)
	}
	image, _ := contract.Find(images, model)
	var condition string
	for _, w := range image.Waits {
		if strings.Contains(w.Do, ".driver-ctr-ready") && !strings.Contains(w.Do, "lsmod") {
			condition = w.Do
		}
	}
	if condition != "[ -f /run/mellanox/drivers/.driver-ready ] && [ -f /run/nvidia/validations/.driver-ctr-ready ]" {
		t.Fatalf("NVIDIA's image waits for %q", condition)
	}
	f := newFake(t)
	driver := f.pod("init", digest("one"))
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	f.until(driver, serving)
	sidecar := f.pod("reload_nvidia_peermem")
	if err := sidecar.Start(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/run/mellanox/drivers/.driver-ready", "/run/nvidia/validations/.driver-ctr-ready"} {
		if strings.Contains(sidecar.Output("driver"), "is loaded") {
			t.Fatalf("nvidia_peermem is loaded before %s exists", file)
		}
		if err := f.machine.Write(file, ""); err != nil {
			t.Fatal(err)
		}
	}
	f.until(sidecar, "nvidia_peermem is loaded")
}
