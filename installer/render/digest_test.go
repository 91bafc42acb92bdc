package render_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// edit is a change of what a driver is made of.
type edit struct {
	name string
	make func(*render.Input, *render.DriverSet)
}

// set is everything's first driver, whose every part is on.
func set(in render.Input) render.DriverSet { return in.Drivers[0] }

func TestA7EditsThatInstallNothingKeepTheDigest(t *testing.T) {
	tolerations := []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	for _, e := range []edit{
		{"labels of operands", func(in *render.Input, _ *render.DriverSet) {
			in.Policy.Spec.DaemonSets.Labels = map[string]string{"a": "b"}
		}},
		{"annotations of operands", func(in *render.Input, _ *render.DriverSet) {
			in.Policy.Spec.DaemonSets.Annotations = map[string]string{"a": "b"}
		}},
		{"tolerations of operands", func(in *render.Input, _ *render.DriverSet) { in.Policy.Spec.DaemonSets.Tolerations = tolerations }},
		{"pull secrets of operands", func(in *render.Input, _ *render.DriverSet) {
			in.Policy.Spec.DaemonSets.ImagePullSecrets = []string{"a"}
		}},
		{"priority of operands", func(in *render.Input, _ *render.DriverSet) { in.Policy.Spec.DaemonSets.PriorityClassName = "a" }},
		{"tolerations", func(_ *render.Input, s *render.DriverSet) { s.Spec.Tolerations = tolerations }},
		{"tolerations of gds", func(_ *render.Input, s *render.DriverSet) { s.Spec.GDS.Tolerations = tolerations }},
		{"resources", func(_ *render.Input, s *render.DriverSet) { s.Spec.Resources = taste().Resources }},
		{"resources of rdma", func(_ *render.Input, s *render.DriverSet) { s.Spec.RDMA.Resources = taste().Resources }},
		{"pull secrets", func(_ *render.Input, s *render.DriverSet) { s.Spec.ImagePullSecrets = []string{"a"} }},
		{"pull policy", func(_ *render.Input, s *render.DriverSet) { s.Spec.ImagePullPolicy = corev1.PullAlways }},
		{"startup timeout", func(_ *render.Input, s *render.DriverSet) {
			s.Spec.StartupTimeout = &metav1.Duration{Duration: time.Hour}
		}},
		{"the host's driver", func(_ *render.Input, s *render.DriverSet) { s.Spec.HostDriver = v1alpha1.HostDriverRefuse }},
		{"the oldest driver of a host", func(_ *render.Input, s *render.DriverSet) { s.Spec.MinVersion = "550" }},
		{"the owner", func(_ *render.Input, s *render.DriverSet) { s.Owner = "another" }},
		{"the image of the agent", func(in *render.Input, _ *render.DriverSet) { in.Images.Node += "2" }},
		{"a default that is written out", func(_ *render.Input, s *render.DriverSet) {
			s.Spec.Version, s.Spec.Image = in().Images.DriverVersion, in().Images.Driver
			s.Spec.StartupTimeout = &metav1.Duration{Duration: 25 * time.Minute}
		}},
		{"the name of a ConfigMap with the same content", func(in *render.Input, s *render.DriverSet) {
			s.Spec.KernelModuleConfig = "renamed"
			in.Contents["ConfigMap/renamed"] = in.Contents["ConfigMap/modules"]
		}},
		{"another kernel, when modules are compiled on the node", func(_ *render.Input, s *render.DriverSet) { s.Host.Kernel = "6.11.0-1-generic" }},
		{"another architecture, since images are made for several", func(_ *render.Input, s *render.DriverSet) { s.Host.Architecture = "arm64" }},
		{"contents that the driver does not name", func(in *render.Input, _ *render.DriverSet) { in.Contents["ConfigMap/metrics"] = "other" }},
		{"other operands", func(in *render.Input, _ *render.DriverSet) {
			in.Policy.Spec.DCGM = v1alpha1.Component{}
			in.Policy.Spec.Toolkit.RuntimeClass = ""
			in.Policy.Spec.VGPUManager = v1alpha1.VGPUManagerSpec{}
		}},
	} {
		t.Run(e.name, func(t *testing.T) {
			if before, after := digests(t, e); before != after {
				t.Errorf("the digest changes: every node would be drained for an edit that installs nothing")
			}
		})
	}
}

func TestA8EditsThatInstallSomethingChangeTheDigest(t *testing.T) {
	variable := []corev1.EnvVar{{Name: "A", Value: "b"}}
	seen := map[string]string{}
	for _, e := range []edit{
		{"image", func(_ *render.Input, s *render.DriverSet) { s.Spec.Image = "registry.example/own/driver" }},
		{"image by digest", func(_ *render.Input, s *render.DriverSet) { s.Spec.Image = "registry.example/own/driver@sha256:1" }},
		{"version", func(_ *render.Input, s *render.DriverSet) { s.Spec.Version = "570.124.06" }},
		{"the release's image", func(in *render.Input, _ *render.DriverSet) { in.Images.Driver = "registry.example/new/driver" }},
		{"the release's version", func(in *render.Input, _ *render.DriverSet) { in.Images.DriverVersion = "590.1" }},
		{"module type", func(_ *render.Input, s *render.DriverSet) { s.Spec.KernelModuleType = v1alpha1.ModulesProprietary }},
		{"module type auto", func(_ *render.Input, s *render.DriverSet) { s.Spec.KernelModuleType = "" }},
		{"env", func(_ *render.Input, s *render.DriverSet) { s.Spec.Env = variable }},
		{"env that is empty", func(_ *render.Input, s *render.DriverSet) { s.Spec.Env = []corev1.EnvVar{{Name: "A"}} }},
		{"args", func(_ *render.Input, s *render.DriverSet) { s.Spec.Args = []string{"-x", "-y"} }},
		{"the order of args", func(_ *render.Input, s *render.DriverSet) { s.Spec.Args = []string{"-y", "-x"} }},
		{"content of the modules' parameters", content("ConfigMap/modules")},
		{"content of the repositories", content("ConfigMap/repositories")},
		{"content of the certificates", content("ConfigMap/certificates")},
		{"content of the license", content("Secret/license")},
		{"content of the secret environment", content("Secret/environment")},
		{"content of a variable's ConfigMap", func(in *render.Input, s *render.DriverSet) {
			s.Spec.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "variables"}, Key: "a",
			}}}}
			in.Contents["ConfigMap/variables"] = "v1"
		}},
		{"no parameters of modules any more", func(_ *render.Input, s *render.DriverSet) { s.Spec.KernelModuleConfig = "" }},
		{"rdma off", func(_ *render.Input, s *render.DriverSet) { s.Spec.RDMA = v1alpha1.RDMASpec{} }},
		{"rdma without the host's MOFED", func(_ *render.Input, s *render.DriverSet) { s.Spec.RDMA.UseHostMOFED = false }},
		{"rdma's env", func(_ *render.Input, s *render.DriverSet) { s.Spec.RDMA.Env = variable }},
		{"gds off", func(_ *render.Input, s *render.DriverSet) { s.Spec.GDS = v1alpha1.Component{} }},
		{"gds's image", func(_ *render.Input, s *render.DriverSet) { s.Spec.GDS.Image = "registry.example/own/fs:1" }},
		{"gds's env", func(_ *render.Input, s *render.DriverSet) { s.Spec.GDS.Env = variable }},
		{"gdrcopy off", func(_ *render.Input, s *render.DriverSet) { s.Spec.GDRCopy = v1alpha1.Component{} }},
		{"gdrcopy's args", func(_ *render.Input, s *render.DriverSet) { s.Spec.GDRCopy.Args = []string{"-x"} }},
		{"precompiled modules", func(_ *render.Input, s *render.DriverSet) {
			s.Spec.UsePrecompiled, s.Spec.GDS, s.Spec.GDRCopy = true, v1alpha1.Component{}, v1alpha1.Component{}
		}},
		{"operating system", func(_ *render.Input, s *render.DriverSet) { s.Host.OS = "ubuntu22.04" }},
		{"where the driver is shown", func(in *render.Input, _ *render.DriverSet) { in.Policy.Spec.HostPaths.DriverInstallDir = "/other" }},
		{"the host's root", func(in *render.Input, _ *render.DriverSet) { in.Policy.Spec.HostPaths.Root = "/other" }},
		{"the vGPU host driver", func(_ *render.Input, s *render.DriverSet) { s.VGPU = true }},
	} {
		t.Run(e.name, func(t *testing.T) {
			before, after := digests(t, e)
			if before == after {
				t.Error("the digest stays: nodes would keep what they have")
			}
			if other := seen[after]; other != "" {
				t.Errorf("the digest is that of %q", other)
			}
			seen[after] = e.name
		})
	}
}

// The digest of what is installed on all clusters must not change by accident: it would reinstall every driver. A field that is added or
// renamed leaves these as they are.
func TestDigestsAreThoseOfTheFirstRelease(t *testing.T) {
	in := everything()
	got := map[string]string{}
	for _, s := range append(in.Drivers, render.DriverSet{Owner: "plain", Host: ubuntu()}) {
		name := s.Owner
		if s.VGPU {
			name = "vgpu"
		}
		got[name] = drv(t, in, s).Digest
	}
	want := map[string]string{
		"ClusterPolicy/default": "181f810a14a9a0b057441848731115d6298d6a79df9a446f4e67b2671b7f2526",
		"plain":                 "c4a6e26589f2bd62c6c06db48c018918dfd19277ca7500e4e075d331434f1023",
		"rhel":                  "27f780f35d886680af9b520e76c27ee89eb5c9e0445dc2e9d69faf9674f961e5",
		"vgpu":                  "34d797a269dae0b3ee84b3f9a52bb16c13cc1ea3947885cde50a6a62aeed0d49",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("digests changed: -recorded +now\n%s", diff)
	}
}

func TestA2TwoOperatingSystemsHaveTheirOwnDrivers(t *testing.T) {
	in := plain()
	in.Drivers = append(in.Drivers, render.DriverSet{Owner: "ClusterPolicy/default", Host: rhel()})
	got := images(t, in)
	want := []string{"registry.example:5000/nvidia/driver:580.105.08-rhel9.6", "registry.example:5000/nvidia/driver:580.105.08-ubuntu24.04"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// What one is does not depend on the other.
	alone := plain()
	alone.Drivers = in.Drivers[1:]
	if drv(t, alone, alone.Drivers[0]) != drv(t, in, in.Drivers[1]) {
		t.Error("a driver changes with other nodes")
	}
}

// The driver of a vGPU guest has the suffix in its version, which precedes the operating system in the tag: NVIDIA's guide builds the image as
// <version>-grid-<os> (DRIVER_VERSION=550.127.05-grid, OS_TAG=ubuntu24.04).
func TestGuestDriverHasItsSuffixInTheTag(t *testing.T) {
	in := plain()
	in.Drivers[0].Spec.Version = "550.127.05-grid"
	if diff := cmp.Diff([]string{"registry.example:5000/nvidia/driver:550.127.05-grid-ubuntu24.04"}, images(t, in)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestA3TwoKernelsHaveTheirOwnPrecompiledDrivers(t *testing.T) {
	in := plain()
	spec := v1alpha1.DriverSpec{UsePrecompiled: true, Version: "580"}
	newer := ubuntu()
	newer.Kernel = "6.8.0-79-generic"
	in.Drivers = []render.DriverSet{{Owner: "a", Spec: spec, Host: ubuntu()}, {Owner: "a", Spec: spec, Host: newer}}
	want := []string{
		"registry.example:5000/nvidia/driver:580-6.8.0-60-generic-ubuntu24.04", "registry.example:5000/nvidia/driver:580-6.8.0-79-generic-ubuntu24.04",
	}
	if diff := cmp.Diff(want, images(t, in)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestOwnersOfTheSameDriverShareItsDaemonSet(t *testing.T) {
	in := plain()
	own := v1alpha1.DriverSpec{Component: taste()}
	own.Env, own.Args = nil, nil
	in.Drivers = append(in.Drivers, render.DriverSet{Owner: "a", Spec: own, Host: ubuntu()})
	ds := driverSet(t, in)
	if got := ds.Spec.Template.Spec.Tolerations; len(got) != 2 {
		t.Errorf("tolerations are those of both owners, got %v", got)
	}
	if got := ds.Spec.Template.Spec.ImagePullSecrets; len(got) != 1 {
		t.Errorf("pull secrets are those of both owners, got %v", got)
	}
}

func TestDriverIsRefusedWithWhatToDo(t *testing.T) {
	for _, c := range []struct {
		edit
		want string
	}{
		{edit{"tag", func(_ *render.Input, s *render.DriverSet) { s.Spec.Image = "registry.example:5000/driver:580" }}, "remove the tag and set version"},
		{edit{"no image", func(in *render.Input, _ *render.DriverSet) { in.Images.Driver = "" }}, "set image"},
		{edit{"no version", func(in *render.Input, _ *render.DriverSet) { in.Images.DriverVersion = "" }}, "set version"},
		{edit{"no operating system", func(_ *render.Input, s *render.DriverSet) { s.Host.OS = "" }}, "operating system"},
		{edit{"no kernel", func(_ *render.Input, s *render.DriverSet) { s.Spec.UsePrecompiled, s.Host.Kernel = true, "" }}, "kernel"},
		{edit{"kernel that is no tag", func(_ *render.Input, s *render.DriverSet) { s.Spec.UsePrecompiled, s.Host.Kernel = true, "6.8+mine" }}, "by its digest"},
		{edit{"no image of gds", func(in *render.Input, _ *render.DriverSet) { in.Images.GDS = "" }}, "set gds.image"},
		{edit{"no image of gdrcopy", func(in *render.Input, _ *render.DriverSet) { in.Images.GDRCopy = "" }}, "set gdrcopy.image"},
		{edit{"no image of the vGPU manager", func(in *render.Input, s *render.DriverSet) { in.Policy.Spec.VGPUManager.Image, s.VGPU = "", true }}, "set vgpuManager.image"},
		{
			edit{"absent ConfigMap", func(in *render.Input, _ *render.DriverSet) { delete(in.Contents, "ConfigMap/modules") }},
			"ConfigMap tessera-system/modules, referenced by kernelModuleConfig, does not exist",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := everything()
			s := set(in)
			c.make(&in, &s)
			_, err := render.Driver(in, s)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			var absent *render.Absent
			if is := errors.As(err, &absent); is != strings.HasPrefix(c.name, "absent") {
				t.Errorf("the error reports an absent object: %v", is)
			}
		})
	}
}

func TestReferencesAreWhatPoliciesName(t *testing.T) {
	in := everything()
	in.Policy.Spec.Driver.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "variable"}, Key: "a",
	}}}}
	got := render.References(in.Policy.Spec, []v1alpha1.DriverSpec{{RepoConfig: "others", SecretEnv: "environment"}})
	want := []string{
		"ConfigMap/certificates", "ConfigMap/metrics", "ConfigMap/modules", "ConfigMap/others", "ConfigMap/repositories",
		"ConfigMap/vgpu-devices", "Secret/environment", "Secret/license", "Secret/variable",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func in() render.Input { return everything() }

func content(reference string) func(*render.Input, *render.DriverSet) {
	return func(in *render.Input, _ *render.DriverSet) { in.Contents[reference] += "changed" }
}

// digests returns the digest before and after an edit.
func digests(t *testing.T, e edit) (before, after string) {
	t.Helper()
	a, b := everything(), everything()
	s := set(b)
	e.make(&b, &s)
	return drv(t, a, set(a)).Digest, drv(t, b, s).Digest
}

func drv(t testing.TB, in render.Input, s render.DriverSet) v1alpha1.DesiredDriver {
	t.Helper()
	d, err := render.Driver(in, s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
