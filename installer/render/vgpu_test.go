package render_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// vgpuDevices returns the pods of the vGPU device manager.
func vgpuDevices(t *testing.T, in render.Input) corev1.PodTemplateSpec {
	t.Helper()
	return one[*appsv1.DaemonSet](t, objects(t, in), render.OperandVGPUDeviceManager).Spec.Template
}

// meets reports whether a node with labels meets the node requirements of a pod.
func meets(pod corev1.PodSpec, labels map[string]string) bool {
	return slices.ContainsFunc(pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		for key, value := range pod.NodeSelector {
			if key != corev1.LabelOSStable && labels[key] != value {
				return false
			}
		}
		return !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			value, has := labels[r.Key]
			switch r.Operator {
			case corev1.NodeSelectorOpIn:
				return !has || !slices.Contains(r.Values, value)
			case corev1.NodeSelectorOpNotIn:
				return has && slices.Contains(r.Values, value)
			case corev1.NodeSelectorOpExists:
				return !has
			case corev1.NodeSelectorOpDoesNotExist:
				return has
			case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			}
			return true
		})
	})
}

// TestVGPUNodesRunTheDeviceManagerAndNoMonitors checks the placement of the device manager: on nodes that vgpuManager selects, while a host driver is placed
// there, unless the node's label disables it as in the GPU Operator (0600_daemonset.yaml:20). Monitors claim devices of an agent that offers monitors: on
// nodes without one they would be pending forever.
func TestVGPUNodesRunTheDeviceManagerAndNoMonitors(t *testing.T) {
	manager := vgpuDevices(t, everything()).Spec
	exporter := one[*appsv1.DaemonSet](t, objects(t, everything()), render.OperandDCGMExporter).Spec.Template.Spec
	const ready, driver, agent = v1alpha1.LabelReady, v1alpha1.LabelDriver, v1alpha1.LabelAgent
	for name, c := range map[string]struct {
		labels             map[string]string
		devices, monitored bool
	}{
		"a vGPU host":                          {map[string]string{"pool": "vgpu", driver: "d", ready: "true"}, true, false},
		"a vGPU host that starts":              {map[string]string{"pool": "vgpu", driver: "d"}, true, false},
		"a vGPU host whose driver is replaced": {map[string]string{"pool": "vgpu", ready: "true"}, false, false},
		"a vGPU host that the user excluded":   {map[string]string{"pool": "vgpu", driver: "d", "nvidia.com/gpu.deploy.vgpu-device-manager": "false"}, false, false},
		"a node with containers":               {map[string]string{"pool": "gpu", driver: "d", agent: "default", ready: "true"}, false, true},
		"a node of another pool":               {map[string]string{"pool": "gpu", driver: "d", agent: "mig", ready: "true"}, false, true},
		"a node with virtual machines":         {map[string]string{"pool": "vm", agent: "sandbox", ready: "true"}, false, false},
	} {
		if devices, monitored := meets(manager, c.labels), meets(exporter, c.labels); devices != c.devices || monitored != c.monitored {
			t.Errorf("%s: device manager %t, exporter %t", name, devices, monitored)
		}
	}
}

// TestVGPUDeviceManagerHasItsContract checks what NVIDIA's program requires (vgpu-device-manager cmd/nvidia-k8s-vgpu-dm/main.go:56-57,242-256) with the mounts
// of the GPU Operator (0600_daemonset.yaml:46-88).
func TestVGPUDeviceManagerHasItsContract(t *testing.T) {
	in := everything()
	in.Policy.Spec.HostPaths = v1alpha1.HostPathsSpec{Root: "/own", Sys: "/own/sys", DriverInstallDir: "/own/driver"}
	template := vgpuDevices(t, in)
	c := container(t, template.Spec, "nvidia-vgpu-device-manager")
	for path, want := range map[string]string{"/sys": "/own/sys", "/host": "/own", "/driver-root": "/own/driver"} {
		if v := mountedAt(template.Spec, c, path); v == nil || v.HostPath == nil || v.HostPath.Path != want {
			t.Errorf("%s is %+v, want %s of the host", path, v, want)
		}
	}
	var env []string
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = e.ValueFrom.FieldRef.FieldPath
		}
		env = append(env, e.Name+"="+value)
	}
	want := []string{"NODE_NAME=spec.nodeName", "NAMESPACE=metadata.namespace", "CONFIG_FILE=/vgpu-config/config.yaml", "DEFAULT_VGPU_CONFIG=default"}
	if !slices.Equal(env, want) {
		t.Errorf("variables %q, want %q", env, want)
	}
	if v := mountedAt(template.Spec, c, "/vgpu-config"); v == nil || v.ConfigMap == nil || v.ConfigMap.Name != "vgpu-devices" {
		t.Errorf("the configurations are %+v", v)
	}
	in.Contents["ConfigMap/vgpu-devices"] = "another"
	if before, after := template.Annotations[render.AnnotationConfig], vgpuDevices(t, in).Annotations[render.AnnotationConfig]; before != "c5" || after != "another" {
		t.Errorf("another content does not reach the program, which reads it at its start: hash %q, then %q", before, after)
	}
	if got := render.References(in.Policy.Spec, nil); !slices.Contains(got, "ConfigMap/vgpu-devices") {
		t.Errorf("the ConfigMap is not read: %v", got)
	}
}

// TestVGPUDeviceManagerAwaitsTheHostDriver runs the container's command and its probe with files in the place of sysfs and of the driver's root. The conditions are
// those of NVIDIA's validator (gpu-operator cmd/nvidia-validator/main.go:1783-1850). NVIDIA's program does not repeat a configuration that failed because a
// GPU had no parents yet (vgpu-device-manager cmd/nvidia-k8s-vgpu-dm/main.go:289-313).
func TestVGPUDeviceManagerAwaitsTheHostDriver(t *testing.T) {
	const smi = "/driver-root/usr/bin/nvidia-smi"
	gpu := func(address, vendor, class, total, enabled string) map[string]string {
		at := "/sys/bus/pci/devices/" + address
		return map[string]string{at + "/vendor": vendor, at + "/class": class, at + "/sriov_totalvfs": total, at + "/sriov_numvfs": enabled}
	}
	a40 := func(enabled string) map[string]string {
		return gpu("0000:3b:00.0", "0x10de\n", "0x030200\n", "32\n", enabled+"\n")
	}
	t4 := map[string]string{"/sys/bus/pci/devices/0000:5e:00.0/vendor": "0x10de\n", "/sys/bus/pci/devices/0000:5e:00.0/class": "0x030200\n"}
	parent := map[string]string{"/sys/class/mdev_bus/0000:5e:00.0/x": ""}
	nic := gpu("0000:18:00.0", "0x15b3\n", "0x020000\n", "8\n", "4\n")
	for name, c := range map[string]struct {
		files  []map[string]string
		starts bool
	}{
		"no driver":                                    {[]map[string]string{a40("32")}, false},
		"virtual functions are not enabled yet":        {[]map[string]string{{smi: ""}, a40("0"), nic}, false},
		"some virtual functions are enabled":           {[]map[string]string{{smi: ""}, a40("16"), nic}, false},
		"all virtual functions are enabled":            {[]map[string]string{{smi: ""}, a40("32"), nic}, true},
		"one of two GPUs has its virtual functions":    {[]map[string]string{{smi: ""}, a40("32"), gpu("0000:af:00.0", "0x10de\n", "0x030200\n", "32\n", "0\n")}, false},
		"a GPU without virtual functions":              {[]map[string]string{{smi: ""}, t4}, false},
		"such a GPU is a parent of devices":            {[]map[string]string{{smi: ""}, t4, parent}, true},
		"a parent of devices, and no root of a driver": {[]map[string]string{t4, parent}, false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			files := map[string]string{"/bin/nvidia-k8s-vgpu-dm": "#!/bin/sh\necho started $*\n", "/bin/sleep": "#!/bin/sh\nkill $PPID\n"}
			shown := false
			for _, more := range c.files {
				for path, text := range more {
					files[path] = text
					shown = shown || path == smi
				}
			}
			for path, text := range files {
				probed{t, folder}.write(path, text)
			}
			in := everything()
			in.Policy.Spec.VGPUDeviceManager.Args = []string{"--own"}
			main := container(t, vgpuDevices(t, in).Spec, "nvidia-vgpu-device-manager")
			output, err := run(t, folder, slices.Concat(main.Command, main.Args))
			if started := output == "started --own\n"; started != c.starts || started != (err == nil) {
				t.Errorf("the program starts: %t, want %t: %s, %v", started, c.starts, output, err)
			}
			for what, probe := range map[string]*corev1.Probe{"startup": main.StartupProbe, "liveness": main.LivenessProbe} {
				if _, err := run(t, folder, probe.Exec.Command); shown != (err == nil) {
					t.Errorf("driver root %t: %s probe %v", shown, what, err)
				}
			}
		})
	}
}

// run runs a command of the device manager with a folder in the place of the container's root.
func run(t *testing.T, folder string, command []string) (string, error) {
	t.Helper()
	line := slices.Clone(command)
	for i := range line {
		for _, path := range []string{"/driver-root", "/sys/bus", "/sys/class"} {
			line[i] = strings.ReplaceAll(line[i], path, folder+path)
		}
	}
	c := exec.CommandContext(t.Context(), line[0], line[1:]...)
	c.Env = []string{"PATH=" + filepath.Join(folder, "bin") + ":/usr/bin:/bin"}
	output, err := c.Output()
	return string(output), err
}

// nvidiaConfigs is the SHA-256 of the configurations in NVIDIA's ConfigMap default-vgpu-devices-config (gpu-operator v26.7,
// assets/state-vgpu-device-manager/0500_configmap.yaml): its config.yaml as JSON with sorted keys and without spaces.
const nvidiaConfigs = "c011c0fc75d053234ddbcb29ba4dbf8770dfb48156f0cec08862905b6258ca5d"

// TestDefaultVGPUConfigsAreNVIDIAs checks that nodes can name the same configurations as with the GPU Operator, with the same devices.
func TestDefaultVGPUConfigsAreNVIDIAs(t *testing.T) {
	in := everything()
	in.Policy.Spec.VGPUDeviceManager.Config.Name = ""
	config := one[*corev1.ConfigMap](t, objects(t, in), "tessera-vgpu-config")
	if v := mountedAt(vgpuDevices(t, in).Spec, container(t, vgpuDevices(t, in).Spec, "nvidia-vgpu-device-manager"), "/vgpu-config"); v == nil || v.ConfigMap.Name != config.Name {
		t.Errorf("the program reads %+v", v)
	}
	text, err := json.Marshal(parsed(t, config.Data["config.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != nvidiaConfigs {
		t.Errorf("the configurations differ from NVIDIA's: %x of %d bytes", sum, len(text))
	}
	if slices.Contains(titles(objects(t, everything())), "ConfigMap/tessera-vgpu-config") {
		t.Error("the installer writes its configurations next to those of the policy")
	}
}
