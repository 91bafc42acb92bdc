package render_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// container returns a container of a pod.
func container(t testing.TB, pod corev1.PodSpec, name string) corev1.Container {
	t.Helper()
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no container %s", name)
	return corev1.Container{}
}

// mountedAt returns the volume that a container mounts at a path, and nil without one.
func mountedAt(pod corev1.PodSpec, c corev1.Container, path string) *corev1.Volume {
	for _, m := range c.VolumeMounts {
		if m.MountPath != path {
			continue
		}
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		return &pod.Volumes[i]
	}
	return nil
}

// probed is a driver container's file system: what its startup probe and hook read and write.
type probed struct {
	t      *testing.T
	folder string
}

func (p probed) write(path, text string) {
	p.t.Helper()
	at := filepath.Join(p.folder, path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o755); err != nil {
		p.t.Fatal(err)
	}
}

// run runs a command of the container with this file system in the place of its root.
func (p probed) run(command []string, env ...string) (string, error) {
	line := slices.Clone(command)
	for i := range line {
		for _, path := range []string{"/run/nvidia", "/sys/module"} {
			line[i] = strings.ReplaceAll(line[i], path, p.folder+path)
		}
	}
	c := exec.CommandContext(p.t.Context(), line[0], line[1:]...)
	c.Env = append(env, "PATH="+p.folder+"/bin:/usr/bin:/bin")
	output, err := c.CombinedOutput()
	return string(output), err
}

// ready returns the content of the file for which sidecars wait, and "" without one.
func (p probed) ready() string {
	text, err := os.ReadFile(filepath.Join(p.folder, "run/nvidia/validations/.driver-ctr-ready"))
	if err != nil {
		return ""
	}
	return string(text)
}

// TestStartupProbeReportsTheDriverToSidecars runs the startup probe and the hook before termination, as NVIDIA's do (gpu-operator
// manifests/state-driver/0400_configmap.yaml:15-58, 0500_daemonset.yaml:367-370): sidecars wait for the file that the probe writes
// (gpu-driver-container ubuntu24.04/nvidia-driver:798,805).
func TestStartupProbeReportsTheDriverToSidecars(t *testing.T) {
	pod := driverSet(t, plain()).Spec.Template.Spec
	main := container(t, pod, render.DriverContainer)
	p := probed{t, t.TempDir()}
	fails := func(missing string) {
		t.Helper()
		if output, err := p.run(main.StartupProbe.Exec.Command); err == nil || p.ready() != "" {
			t.Errorf("without %s the probe succeeds, or sidecars start: %v %s, file %q", missing, err, output, p.ready())
		}
	}
	p.write("run/nvidia/validations/.driver-ctr-ready", "of a container that was killed")
	fails("the module")
	p.write("sys/module/nvidia/refcnt", "0\n")
	p.write("run/nvidia/validations/.driver-daemons-status", "NotReady\n")
	p.write("bin/nvidia-smi", "#!/bin/sh\n")
	p.write("run/nvidia/driver/usr/bin/nvidia-smi", "")
	fails("its daemons")
	p.write("run/nvidia/validations/.driver-daemons-status", "Ready\n")
	p.write("bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
	fails("nvidia-smi")
	p.write("bin/nvidia-smi", "#!/bin/sh\n")
	if err := os.RemoveAll(filepath.Join(p.folder, "run/nvidia/driver")); err != nil {
		t.Fatal(err)
	}
	fails("the driver's root")
	p.write("run/nvidia/driver/usr/bin/nvidia-smi", "")
	output, err := p.run(main.StartupProbe.Exec.Command, "GPU_DIRECT_RDMA_ENABLED=true")
	if want := "GDRCOPY_ENABLED: false\nGDS_ENABLED: false\nGPU_DIRECT_RDMA_ENABLED: true\n"; err != nil || p.ready() != want {
		t.Errorf("the probe of a driver that serves: %v %s, file %q, want %q", err, output, p.ready(), want)
	}
	if main.Lifecycle == nil || main.Lifecycle.PreStop == nil {
		t.Fatal("nothing reports to sidecars that the driver stops")
	}
	hook := slices.Clone(main.Lifecycle.PreStop.Exec.Command)
	if output, err := p.run(hook); err != nil || p.ready() != "" {
		t.Errorf("before termination: %v %s, file %q", err, output, p.ready())
	}
}

// rdma is a driver with nvidia_peermem.
func rdma(hostMOFED bool) render.Input {
	in := plain()
	in.Drivers[0].Spec.RDMA = v1alpha1.RDMASpec{Component: v1alpha1.Component{Enabled: new(true)}, UseHostMOFED: hostMOFED}
	return in
}

// TestPeermemIsProbedAsNVIDIADoes checks that the image itself decides whether nvidia_peermem must be loaded: on a node without a network driver it
// must not. After a replacement of the network driver the container is restarted, because it loads the module only at its start.
func TestPeermemIsProbedAsNVIDIADoes(t *testing.T) {
	c := container(t, driverSet(t, rdma(false)).Spec.Template.Spec, "nvidia-peermem-ctr")
	for what, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe} {
		if probe == nil || strings.Join(probe.Exec.Command, " ") != "sh -c nvidia-driver probe_nvidia_peermem" {
			t.Errorf("%s probe: %+v", what, probe)
		}
	}
}

// TestNetworkDriverIsAwaited checks that a driver with RDMA waits for the network driver, after the modules of an earlier driver have been unloaded,
// which keep the network driver from being replaced.
func TestNetworkDriverIsAwaited(t *testing.T) {
	if n := len(driverSet(t, plain()).Spec.Template.Spec.InitContainers); n != 2 {
		t.Errorf("%d init containers without RDMA", n)
	}
	for _, host := range []bool{false, true} {
		init := driverSet(t, rdma(host)).Spec.Template.Spec.InitContainers
		last := init[len(init)-1]
		if last.Name != "network-driver" || init[len(init)-2].Name != "unload" || slices.Contains(last.Args, "--from-host") != host {
			t.Errorf("useHostMOFED %t: %s %v", host, last.Name, last.Args)
		}
	}
}

// TestHostMOFEDMapsItsHeaders checks that nvidia_peermem is compiled with the headers of the host's network driver (0500_daemonset.yaml:669).
func TestHostMOFEDMapsItsHeaders(t *testing.T) {
	const headers = "/run/mellanox/drivers/usr/src"
	pod := driverSet(t, rdma(true)).Spec.Template.Spec
	if v := mountedAt(pod, container(t, pod, render.DriverContainer), headers); v == nil || v.HostPath.Path != "/usr/src" {
		t.Errorf("with useHostMOFED, %s is %+v", headers, v)
	}
	pod = driverSet(t, rdma(false)).Spec.Template.Spec
	if v := mountedAt(pod, container(t, pod, render.DriverContainer), headers); v != nil {
		t.Errorf("without it the container hides that of the network driver: %+v", v)
	}
}

// TestSidecarsInstallPackagesLikeTheDriver checks that sidecars, which compile as well, have the driver's repositories, certificates, subscription,
// module parameters, Secret and proxies (0500_daemonset.yaml:440-560).
func TestSidecarsInstallPackagesLikeTheDriver(t *testing.T) {
	in := everything()
	in.Drivers = in.Drivers[:1]
	in.Drivers[0].Host = rhel()
	spec := &in.Drivers[0].Spec
	spec.Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy"}, {Name: "no_proxy", Value: "example"}, {Name: "OTHER", Value: "x"}}
	spec.GDS.Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://own"}}
	subscription := *spec
	subscription.RepoConfig = ""
	in.Drivers = append(in.Drivers, render.DriverSet{Owner: "b", Host: rhel(), Spec: subscription})
	entitled := 0
	for _, ds := range driverSets(t, in) {
		pod := ds.Spec.Template.Spec
		main := container(t, pod, render.DriverContainer)
		for _, name := range []string{"nvidia-peermem-ctr", "nvidia-fs-ctr", "nvidia-gdrcopy-ctr"} {
			c := container(t, pod, name)
			if got, want := files(c), files(main); !slices.Equal(got, want) {
				t.Errorf("%s has the files %v, want %v", name, got, want)
			}
			if (mountedAt(pod, c, entitlement) == nil) != (mountedAt(pod, main, entitlement) == nil) {
				t.Errorf("%s and the driver differ in the subscription", name)
			}
			if mountedAt(pod, c, entitlement) != nil {
				entitled++
			}
			if len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef.Name != "environment" {
				t.Errorf("%s has no Secret: %v", name, c.EnvFrom)
			}
			proxy := corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy"}
			if name == "nvidia-fs-ctr" {
				proxy.Value = "http://own"
			}
			if !slices.Contains(c.Env, proxy) || !slices.Contains(c.Env, corev1.EnvVar{Name: "no_proxy", Value: "example"}) ||
				slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "OTHER" }) {
				t.Errorf("%s has the variables %v", name, c.Env)
			}
		}
	}
	if entitled != 3 {
		t.Errorf("%d sidecars have the subscription, want the three of the driver without own repositories", entitled)
	}
}

// entitlement is the path of the host's subscription in RHEL images.
const entitlement = "/run/secrets/etc-pki-entitlement"

// TestSysfsIsMountedByFolder checks that no driver pod mounts a file of sysfs: some kernels lack it, the runtime cannot create it, and the pod would
// fail with CreateContainerError. NVIDIA mounts the folder of auto_online_blocks for that reason (0500_daemonset.yaml:333).
func TestSysfsIsMountedByFolder(t *testing.T) {
	var seen []string
	for _, ds := range driverSets(t, everything()) {
		for _, v := range ds.Spec.Template.Spec.Volumes {
			if v.HostPath == nil || !strings.HasPrefix(v.HostPath.Path, "/sys/") {
				continue
			}
			seen = append(seen, v.HostPath.Path)
			if v.HostPath.Type == nil || *v.HostPath.Type != corev1.HostPathDirectory {
				t.Errorf("%s: %s may be missing", ds.Name, v.HostPath.Path)
			}
		}
	}
	for _, folder := range []string{"/sys/module", "/sys/devices/system"} {
		if !slices.Contains(seen, folder) {
			t.Errorf("%s is not mounted: %v", folder, seen)
		}
	}
}

// TestVGPUHostDriversHaveNVIDIAsGracePeriod checks the time to remove virtual functions and unload (0500_daemonset.yaml:76).
func TestVGPUHostDriversHaveNVIDIAsGracePeriod(t *testing.T) {
	for _, object := range objects(t, everything()) {
		ds, ok := object.(*appsv1.DaemonSet)
		if !ok || !strings.HasPrefix(ds.Name, render.OperandVGPUManager) {
			continue
		}
		if got := *ds.Spec.Template.Spec.TerminationGracePeriodSeconds; got != 120 {
			t.Errorf("%s has %d s", ds.Name, got)
		}
		return
	}
	t.Error("no vGPU host driver")
}
