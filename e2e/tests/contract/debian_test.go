package contract_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/driverimage"
	"github.com/tessera-gpu/tessera/e2e/tests/contract"
	"github.com/tessera-gpu/tessera/e2e/tests/contract/machine"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

const (
	debianKernel = "6.1.0-56-cloud-amd64"
	container    = render.DriverContainer
	waiting      = "waiting for a signal"
)

// debian is a simulated machine with Debian 12 and the driver pod that the installer renders for it. Its image has our entry point, and files in the place
// of NVIDIA's.
type debian struct {
	t       *testing.T
	machine *machine.Machine
	image   machine.Image
	spec    v1alpha1.DriverSpec
	configs machine.Configs
	seen    int
}

// newDebian starts the machine. The image has modules of the kernels, and the machine the other files.
func newDebian(t *testing.T, files map[string]string, kernels ...string) *debian {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts file systems: needs root")
	}
	folder := t.TempDir()
	recorder := filepath.Join(folder, "recorder")
	c := exec.CommandContext(t.Context(), "go", "build", "-o", recorder, "./recorder")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build the recorder: %v: %s", err, text)
	}
	d := &debian{t: t, configs: machine.Configs{}}
	var err error
	if d.image, err = machine.BuildImage(filepath.Join(folder, "image"), recorder, false); err != nil {
		t.Fatal(err)
	}
	d.image.Env = []string{"DRIVER_VERSION=" + version}
	content := map[string]string{
		"usr/lib/nvidia/version": version + "\n", "opt/nvidia/firmware/" + version + "/gsp_ga10x.bin": "firmware\n",
		"usr/local/bin/nvidia-driver": driverimage.EntryPoint(),
	}
	for _, kernel := range kernels {
		for _, module := range driverimage.Modules() {
			content["opt/nvidia/modules/"+kernel+"/proprietary/"+module+".ko"] = version + "\n"
		}
	}
	d.add(content)
	for _, name := range []string{"nvidia-smi", "nvidia-persistenced"} {
		if err := os.Symlink("/usr/lib/contract/recorder", filepath.Join(d.image.Folder, "usr/bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{"lib/modules/" + debianKernel + "/kernel/drivers/char/ipmi/ipmi_msghandler.ko": ""}
	maps.Copy(all, files)
	spec := machine.Spec{OS: "ID=debian\nVERSION_ID=12\n", Kernel: debianKernel, Files: all}
	if d.machine, err = machine.Start(filepath.Join(folder, "machine"), recorder, spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.machine.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// add writes files into the image.
func (d *debian) add(files map[string]string) {
	d.t.Helper()
	for name, text := range files {
		path := filepath.Join(d.image.Folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			d.t.Fatal(err)
		}
	}
}

// sources are the sources of the modules of a type, with the command of Debian's dkms.conf.
func sources(folder string) map[string]string {
	return map[string]string{
		"usr/src/" + folder + "-" + version + "/dkms.conf": "MAKE[0]=\"env NV_VERBOSE=1 make ${parallel_jobs+-j$parallel_jobs} modules KERNEL_UNAME=${kernelver}\"\n",
	}
}

// pod starts the container of the rendered pod.
func (d *debian) pod() *machine.Pod {
	d.t.Helper()
	d.spec.Image, d.spec.Version = driverimage.Name, version
	spec, err := contract.DriverPod(render.DriverSet{
		Owner: "ClusterPolicy/default", Spec: d.spec, Host: render.Host{OS: driverimage.Host, Kernel: debianKernel},
	}, d.configs)
	if err != nil {
		d.t.Fatal(err)
	}
	pod := d.machine.NewPod(spec, machine.Images{driverimage.Name + ":" + version + "-" + driverimage.Host: d.image}, d.configs)
	if err := pod.Start(); err != nil {
		d.t.Fatal(err)
	}
	return pod
}

// up waits until the container serves and the rendered startup probe has succeeded, and returns the steps since the last call.
func (d *debian) up(pod *machine.Pod) []contract.Step {
	d.t.Helper()
	if err := pod.Wait(time.Minute); err != nil {
		d.t.Fatal(err)
	}
	d.until(pod, func() bool { return strings.Contains(pod.Output(container), waiting) || pod.Ended(container) })
	return d.steps()
}

func (d *debian) until(pod *machine.Pod, holds func() bool) {
	d.t.Helper()
	tick, end := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end:
			d.t.Fatalf("the container prints: %s", pod.Output(container))
		}
	}
}

func (d *debian) steps() []contract.Step {
	d.t.Helper()
	calls, err := d.machine.Calls()
	if err != nil {
		d.t.Fatal(err)
	}
	var steps []contract.Step
	for _, c := range calls[d.seen:] {
		if do := contract.StepOf(c); do != "" {
			steps = append(steps, contract.Step{Do: do})
		}
	}
	d.seen = len(calls)
	return steps
}

// failure starts the pod, waits until its container fails, and returns how the installer sees the pod.
func (d *debian) failure() phase.Pod {
	d.t.Helper()
	pod := d.pod()
	d.until(pod, func() bool { return pod.Ended(container) })
	return nodestate.ObservePod(pod.Failure(container))
}

// TestDebianDriverDoesWhatNVIDIAsImagesDo compares the steps of the entry point of our images for Debian with those of NVIDIA's for Ubuntu, without RDMA.
func TestDebianDriverDoesWhatNVIDIAsImagesDo(t *testing.T) {
	images, err := contract.Table()
	if err != nil {
		t.Fatal(err)
	}
	want, found := contract.Find(images, model)
	if !found {
		t.Fatalf("the table has no %s", model)
	}
	d := newDebian(t, nil, debianKernel)
	d.spec.KernelModuleConfig = "parameters"
	d.configs["parameters"] = map[string]string{"nvidia.conf": "NVreg_A=1\nNVreg_B=2", "nvidia-uvm.conf": "uvm_c=3\n"}
	pod := d.pod()
	compare := func(what string, want []contract.Step, got []contract.Step) {
		t.Helper()
		if diff := cmp.Diff(withoutRDMA(want), doOf(got)); diff != "" {
			t.Errorf("%s: -NVIDIA +Debian\n%s", what, diff)
		}
	}
	compare("installation", want.Install, d.up(pod))
	for file, text := range map[string]string{
		"/sys/module/nvidia/version": version, "/run/nvidia/validations/.driver-daemons-status": "Ready",
		"/sys/module/nvidia/parameters": "options nvidia NVreg_A=1 NVreg_B=2", "/sys/module/nvidia_uvm/parameters": "options nvidia-uvm uvm_c=3",
	} {
		if got := d.machine.Read(file); got != text {
			t.Errorf("%s has %q, want %q", file, got, text)
		}
	}
	digest := d.machine.Read("/run/nvidia/nvidia-driver.state")
	if digest == "" || !d.machine.Exists("/run/nvidia/driver/usr/bin/nvidia-smi") {
		t.Errorf("the digest is %q, and the machine sees the driver's root: %t", digest, d.machine.Exists("/run/nvidia/driver/usr/bin/nvidia-smi"))
	}
	if kernel, err := pod.Exec(container, "ls", "/lib/modules/"+debianKernel+"/kernel/drivers/char/ipmi/ipmi_msghandler.ko"); err != nil {
		t.Errorf("modprobe does not find the modules of the node's kernel: %v: %s", err, kernel)
	}
	if err := pod.Kill(container); err != nil {
		t.Fatal(err)
	}
	if err := pod.Restart(container); err != nil {
		t.Fatal(err)
	}
	restart := slices.DeleteFunc(d.up(pod), func(s contract.Step) bool { return strings.HasSuffix(s.Do, ".state") })
	compare("restart", want.Restart, restart)
	if ended, err := pod.Stop(); err != nil || !ended[container] {
		t.Fatalf("the container ends by itself: %t, %v: %s", ended[container], err, pod.Output(container))
	}
	compare("removal", want.Remove, d.steps())
	if modules := d.machine.Modules(); len(modules) > 0 || d.machine.Exists("/run/nvidia/driver/usr/bin/nvidia-smi") {
		t.Errorf("after removal the modules %v are loaded", modules)
	}
}

// withoutRDMA leaves out nvidia_peermem, and the modules of the kernel that NVIDIA's images load first: Debian's are found as dependencies.
func withoutRDMA(steps []contract.Step) []string {
	var all []string
	for _, do := range doOf(steps) {
		if do = strings.Replace(do, " nvidia-peermem", "", 1); do != "modprobe" && !strings.HasPrefix(do, "modprobe -a ") && !strings.Contains(do, "postinst.d") {
			all = append(all, do)
		}
	}
	return all
}

func doOf(steps []contract.Step) []string {
	var all []string
	for _, s := range steps {
		all = append(all, s.Do)
	}
	return all
}

// TestDebianDriverCompilesWithTheNodesHeaders: an image without modules compiles those of the type that the policy selects, without packages of the archive.
func TestDebianDriverCompilesWithTheNodesHeaders(t *testing.T) {
	d := newDebian(t, map[string]string{
		"usr/src/linux-headers-" + debianKernel + "/Makefile": "include /usr/src/linux-headers-6.1.0-56-common/Makefile\n",
		"usr/src/linux-headers-6.1.0-56-common/Makefile":      "", "usr/lib/linux-kbuild-6.1/scripts/": "", ".superseded": "",
	})
	d.add(sources("nvidia-current-open"))
	d.spec.KernelModuleType = v1alpha1.ModulesOpen
	pod := d.pod()
	d.up(pod)
	if got := d.machine.Read("/sys/module/nvidia/version"); got != version {
		t.Errorf("version %q is loaded", got)
	}
	for _, path := range []string{
		"/usr/src/linux-headers-6.1.0-56-common/Makefile", "/usr/lib/linux-kbuild-6.1/scripts", "/opt/nvidia/modules/" + debianKernel + "/open/nvidia.ko",
	} {
		if text, err := pod.Exec(container, "ls", path); err != nil {
			t.Errorf("%s: %v: %s", path, err, text)
		}
	}
	if text, err := pod.Exec(container, "find", "/usr/src", "/usr/lib/linux-kbuild-6.1", "-type", "l"); err != nil || strings.Contains(text, "linux-") {
		t.Errorf("%v: make has no name for a folder outside of the root: %s", err, text)
	}
}

// TestDebianDriverInUseIsNotUnloaded: the container waits for another signal while a process uses the driver, and unloads at that.
func TestDebianDriverInUseIsNotUnloaded(t *testing.T) {
	d := newDebian(t, nil, debianKernel)
	pod := d.pod()
	d.up(pod)
	end, err := d.machine.Use("nvidia_uvm")
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Signal(container); err != nil {
		t.Fatal(err)
	}
	d.until(pod, func() bool {
		return strings.Contains(pod.Output(container), "module nvidia-uvm cannot be unloaded: the driver is in use")
	})
	if got := d.machine.Modules(); pod.Ended(container) || !slices.Contains(got, "nvidia_modeset") || !d.machine.Exists("/run/nvidia/driver/usr/bin/nvidia-smi") {
		t.Errorf("the container has ended: %t; modules: %v", pod.Ended(container), got)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if ended, err := pod.Stop(); err != nil || !ended[container] || len(d.machine.Modules()) > 0 {
		t.Errorf("the container ends by itself: %t, %v; modules: %v", ended[container], err, d.machine.Modules())
	}
}

// TestDebianDriverFailuresReachTheNode checks what the installer reports of a pod that fails, from the log as kubelet reports it.
func TestDebianDriverFailuresReachTheNode(t *testing.T) {
	const exited = "container nvidia-driver-ctr exited with code 1: "
	for name, test := range map[string]struct {
		files           map[string]string
		kernels         []string
		sources         bool
		reason, message string
	}{
		"no GPU": {
			files: map[string]string{"sys/bus/pci/devices/0000:3b:00.0/vendor": "0x1af4\n"}, kernels: []string{debianKernel}, reason: phase.ReasonNoSupportedGPU,
			message: exited + "modprobe: ERROR: could not insert 'nvidia': No such device; no GPU that this driver supports is on the PCI bus",
		},
		"precompiled for another kernel": {
			kernels: []string{"6.1.0-1-cloud-amd64"}, reason: "Error",
			message: exited + "this image has no sources, and proprietary modules only for kernel 6.1.0-1-cloud-amd64: use the image for kernel " + debianKernel,
		},
		"no headers": {
			sources: true, files: map[string]string{".superseded": ""}, reason: phase.ReasonHeadersMissing,
			message: exited + "no headers for kernel " + debianKernel + ": install linux-headers-" + debianKernel + " on the node, or use an image with precompiled modules",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDebian(t, test.files, test.kernels...)
			if test.sources {
				d.add(sources("nvidia-current"))
			}
			got := d.failure()
			if got.State != phase.PodFailed || got.Reason != test.reason || !strings.HasPrefix(got.Message, test.message) {
				t.Errorf("the pod is %+v, want %s: %s", got, test.reason, test.message)
			}
			if modules := d.machine.Modules(); len(modules) > 0 || d.machine.Exists("/run/nvidia/nvidia-driver.pid") {
				t.Errorf("the container leaves the modules %v, or its PID file", modules)
			}
		})
	}
}
