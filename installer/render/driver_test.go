package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// TestDriverSeesWhatItsDistributionNeeds checks that the mounts for a distribution's images exist only for that distribution.
func TestDriverSeesWhatItsDistributionNeeds(t *testing.T) {
	const entitlement, credentials, modules = "/etc/pki/entitlement", "/etc/zypp/credentials.d", "/lib/modules"
	for _, c := range []struct {
		name, os string
		spec     v1alpha1.DriverSpec
		want     string
	}{
		{"ubuntu", "ubuntu24.04", v1alpha1.DriverSpec{}, ""},
		{"rhel", "rhel9.6", v1alpha1.DriverSpec{}, entitlement},
		{"rhel with repositories", "rhel9.6", v1alpha1.DriverSpec{RepoConfig: "repositories"}, ""},
		{"rhel precompiled", "rhel9.6", v1alpha1.DriverSpec{UsePrecompiled: true}, ""},
		{"rocky", "rocky9.6", v1alpha1.DriverSpec{}, ""},
		{"sles", "sles15.6", v1alpha1.DriverSpec{}, credentials},
		{"sles precompiled", "sles15.6", v1alpha1.DriverSpec{UsePrecompiled: true}, modules},
		{"sl-micro", "sl-micro6.0", v1alpha1.DriverSpec{}, credentials},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := plain()
			in.Contents["ConfigMap/repositories"] = "c"
			in.Drivers = []render.DriverSet{{Owner: "a", Spec: c.spec, Host: render.Host{OS: c.os, Kernel: "6.4"}}}
			got := ""
			for _, v := range driverSet(t, in).Spec.Template.Spec.Volumes {
				if v.HostPath != nil && slices.Contains([]string{entitlement, credentials, modules}, v.HostPath.Path) {
					got += v.HostPath.Path
				}
			}
			if got != c.want {
				t.Errorf("mounts %q, want %q", got, c.want)
			}
		})
	}
}

// TestConfigurationsAreFilesInTheImagesFolder checks that each key is mounted as a file: a folder would hide the files of the image.
func TestConfigurationsAreFilesInTheImagesFolder(t *testing.T) {
	for _, c := range []struct {
		os   string
		want []string
	}{
		{"ubuntu24.04", []string{
			"/drivers/nvidia.conf", "/etc/apt/sources.list.d/mirror.list", "/usr/local/share/ca-certificates/mirror.crt",
			"/drivers/ClientConfigToken/client_configuration_token.tok", "/drivers/gridd.conf",
		}},
		{"rhel9.6", []string{
			"/drivers/nvidia.conf", "/etc/yum.repos.d/mirror.list", "/etc/pki/ca-trust/extracted/pem/mirror.crt",
			"/drivers/ClientConfigToken/client_configuration_token.tok", "/drivers/gridd.conf",
		}},
		{"sles15.6", []string{
			"/drivers/nvidia.conf", "/etc/zypp/repos.d/mirror.list", "/etc/pki/trust/anchors/mirror.crt",
			"/drivers/ClientConfigToken/client_configuration_token.tok", "/drivers/gridd.conf",
		}},
	} {
		t.Run(c.os, func(t *testing.T) {
			in := everything()
			in.Drivers = in.Drivers[:1]
			in.Drivers[0].Host.OS = c.os
			if diff := cmp.Diff(c.want, files(driverSet(t, in).Spec.Template.Spec.Containers[0])); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	in := everything()
	in.Drivers, in.Keys["Secret/license"] = in.Drivers[:1], []string{"gridd.conf"}
	if got := files(driverSet(t, in).Spec.Template.Spec.Containers[0]); slices.ContainsFunc(got, func(path string) bool { return strings.HasPrefix(path, "/drivers/ClientConfigToken") }) {
		t.Errorf("a token that the Secret does not have is mounted: %v", got)
	}
}

// files are the paths of single files of ConfigMaps and Secrets in a container.
func files(c corev1.Container) []string {
	var all []string
	for _, m := range c.VolumeMounts {
		if m.SubPath != "" {
			all = append(all, m.MountPath)
		}
	}
	return all
}

// TestDriverRootIsMountedAtThePathOfThePolicy checks that the driver root is mounted at the host path of the policy; its path in NVIDIA's images is
// fixed.
func TestDriverRootIsMountedAtThePathOfThePolicy(t *testing.T) {
	in := everything()
	in.Drivers = in.Drivers[:1]
	in.Policy.Spec.HostPaths.DriverInstallDir = "/opt/driver"
	pod := driverSet(t, in).Spec.Template.Spec
	for _, c := range pod.Containers {
		want := corev1.MountPropagationHostToContainer
		if c.Name == render.DriverContainer {
			want = corev1.MountPropagationBidirectional
		}
		i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/run/nvidia/driver" })
		if i < 0 || *c.VolumeMounts[i].MountPropagation != want {
			t.Fatalf("%s does not see the driver's root in %+v", c.Name, c.VolumeMounts)
		}
		volume := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == c.VolumeMounts[i].Name })]
		if volume.HostPath.Path != "/opt/driver" {
			t.Errorf("%s sees %s", c.Name, volume.HostPath.Path)
		}
	}
}

// TestPreflightHasTheDriversSystem checks that the host verbs have the system of the driver, and its kernel only for precompiled drivers.
func TestPreflightHasTheDriversSystem(t *testing.T) {
	in := plain()
	compiled := driverSet(t, in).Spec.Template.Spec.InitContainers[0].Args
	in.Drivers[0].Spec.UsePrecompiled = true
	precompiled := driverSet(t, in).Spec.Template.Spec.InitContainers[0].Args
	for _, flag := range []string{"--kernel=6.8.0-60-generic", "--modules=precompiled"} {
		if slices.Contains(compiled, flag) || !slices.Contains(precompiled, flag) {
			t.Errorf("%s is for precompiled drivers: compiled %v, precompiled %v", flag, compiled, precompiled)
		}
	}
	if !slices.Contains(compiled, "--os=ubuntu24.04") {
		t.Errorf("lacks the operating system: %v", compiled)
	}
}

// TestHostVerbsRunInTheImageOfTheAgent checks that the image of the node agent is also that of the host verbs.
func TestHostVerbsRunInTheImageOfTheAgent(t *testing.T) {
	in := plain()
	in.Policy.Spec.NodeAgent.Component = taste()
	in.Policy.Spec.NodeAgent.Image = "registry.example/own/node:2"
	before, after := drv(t, plain(), in.Drivers[0]), drv(t, in, in.Drivers[0])
	if before != after {
		t.Error("another image of the agent reinstalls the driver")
	}
	pod := driverSet(t, in).Spec.Template.Spec
	for _, c := range pod.InitContainers {
		if c.Image != "registry.example/own/node:2" || c.ImagePullPolicy != corev1.PullAlways {
			t.Errorf("%s runs in %s, pulled %s", c.Name, c.Image, c.ImagePullPolicy)
		}
	}
	if !slices.Contains(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: "own"}) {
		t.Errorf("its pull secret is missing: %v", pod.ImagePullSecrets)
	}
}
