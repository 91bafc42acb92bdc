package render

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mount is a folder or file of the host in a driver container.
type mount struct {
	name, host, container string
	// kind is the volume's type check and creation mode; by default there is none.
	kind        corev1.HostPathType
	propagation corev1.MountPropagationMode
	readOnly    bool
}

// hostMounts returns the mounts that NVIDIA's images require from the host in addition to the driver's folder.
func (d *driver) hostMounts() []mount {
	const in = corev1.MountPropagationHostToContainer
	all := []mount{
		{name: "run-nvidia-fabricmanager", host: "/run/nvidia-fabricmanager", kind: corev1.HostPathDirectoryOrCreate},
		{name: "run-nvidia-topologyd", host: "/run/nvidia-topologyd", kind: corev1.HostPathDirectoryOrCreate},
		{name: "run-mellanox-drivers", host: "/run/mellanox/drivers", kind: corev1.HostPathDirectoryOrCreate, propagation: in},
		{name: "var-log", host: "/var/log"},
		{name: "dev-log", host: "/dev/log"},
		{name: "host-os-release", host: "/etc/os-release", container: "/host-etc/os-release", readOnly: true},
	}
	if !simulated(d.in) {
		// The kernel's firmware search path (module/firmware_class/parameters/path), because the driver contains firmware, and whether GPU memory
		// comes online automatically (devices/system/memory/auto_online_blocks). Some kernels have neither file, and a missing file in sysfs cannot
		// be created; the folders always exist. Simulated hardware does not use the real kernel's.
		all = append(all,
			mount{name: "sys-module", host: "/sys/module", kind: corev1.HostPathDirectory},
			mount{name: "sys-devices-system", host: "/sys/devices/system", kind: corev1.HostPathDirectory},
			mount{name: "firmware", host: path.Join(paths(d.in).DriverInstallDir, "lib/firmware"), container: "/lib/firmware", kind: corev1.HostPathDirectoryOrCreate})
	}
	if rdma := d.set.Spec.RDMA; rdma.Chosen() && rdma.UseHostMOFED {
		// The images compile nvidia_peermem with the network driver's headers at this path, those of a network driver container or the host's.
		all = append(all, mount{
			name: "host-usr-src", host: "/usr/src", container: "/run/mellanox/drivers/usr/src", kind: corev1.HostPathDirectoryOrCreate, propagation: in,
		})
	}
	if d.set.VGPU {
		all = append(all, mount{name: "vfio", host: "/dev/vfio", kind: corev1.HostPathDirectoryOrCreate}, mount{name: "cgroup", host: "/sys/fs/cgroup"})
	}
	return append(all, d.distributionMounts()...)
}

// distributionMounts returns the mounts that images of a distribution need to install packages: the host's subscription, at the path where RHEL
// images expect it (CRI-O mounts it by default), and for precompiled modules on SUSE the host's modules.
func (d *driver) distributionMounts() []mount {
	const folder, file = corev1.HostPathDirectoryOrCreate, corev1.HostPathFileOrCreate
	os, precompiled := d.set.Host.OS, d.set.Spec.UsePrecompiled
	suse := strings.HasPrefix(os, "sles") || strings.HasPrefix(os, "sl-micro")
	switch {
	case suse && precompiled:
		return []mount{{name: "lib-modules", host: "/lib/modules", container: "/run/host/lib/modules", readOnly: true}}
	case suse:
		return []mount{
			{name: "zypp-credentials", host: "/etc/zypp/credentials.d", kind: folder, readOnly: true},
			{name: "suse-connect", host: "/etc/SUSEConnect", kind: file, readOnly: true},
		}
	case strings.HasPrefix(os, "rhel") && !precompiled && d.set.Spec.RepoConfig == "":
		return []mount{
			{name: "entitlement", host: "/etc/pki/entitlement", container: "/run/secrets/etc-pki-entitlement", kind: folder, readOnly: true},
			{name: "redhat-repo", host: "/etc/yum.repos.d/redhat.repo", container: "/run/secrets/redhat.repo", kind: file, readOnly: true},
			{name: "rhsm", host: "/etc/rhsm", container: "/run/secrets/rhsm", kind: folder, readOnly: true},
		}
	}
	return nil
}

// mainMounts returns the mounts of the driver container that it does not share with sidecars.
func (d *driver) mainMounts() []corev1.VolumeMount {
	var all []corev1.VolumeMount
	for _, m := range d.hostMounts() {
		all = append(all, m.in())
	}
	return all
}

func (m mount) in() corev1.VolumeMount {
	v := corev1.VolumeMount{Name: m.name, MountPath: m.host, ReadOnly: m.readOnly}
	if m.container != "" {
		v.MountPath = m.container
	}
	if m.propagation != "" {
		v.MountPropagation = new(m.propagation)
	}
	return v
}

func (m mount) volume() corev1.Volume {
	v := existing(m.name, m.host)
	if m.kind != "" {
		v.HostPath.Type = &m.kind
	}
	return v
}

// mounts returns the mounts of the folders that driver and sidecars share.
func (d *driver) mounts(propagation corev1.MountPropagationMode) []corev1.VolumeMount {
	var all []corev1.VolumeMount
	for _, v := range d.installFolders() {
		at := path.Dir(driverRoot)
		if v.Name != runNVIDIA {
			at = driverRoot
		}
		all = append(all, corev1.VolumeMount{Name: v.Name, MountPath: at, MountPropagation: new(propagation)})
	}
	return all
}

// volumes returns the volumes of the driver pod.
func (d *driver) volumes() []corev1.Volume {
	volumes := append(d.installFolders(), existing("host", paths(d.in).Root))
	for _, m := range d.hostMounts() {
		volumes = append(volumes, m.volume())
	}
	return append(volumes, d.configVolumes()...)
}

// config is a ConfigMap whose keys are mounted as files in a folder of the driver container, without hiding the image's files there.
type config struct{ volume, configMap, folder string }

func (d *driver) configs() []config {
	repositories, certificates := packageFolders(d.set.Host.OS)
	var all []config
	for _, c := range []config{
		{"module-config", d.set.Spec.KernelModuleConfig, "/drivers"},
		{"repositories", d.set.Spec.RepoConfig, repositories},
		{"certificates", d.set.Spec.CertConfig, certificates},
	} {
		if c.configMap != "" {
			all = append(all, c)
		}
	}
	return all
}

// packageFolders returns the folders in which the images of an operating system look for package repositories and for certificates.
func packageFolders(os string) (repositories, certificates string) {
	switch {
	case strings.HasPrefix(os, "ubuntu"), strings.HasPrefix(os, "debian"):
		return "/etc/apt/sources.list.d", "/usr/local/share/ca-certificates"
	case strings.HasPrefix(os, "sle"), strings.HasPrefix(os, "sl-micro"):
		return "/etc/zypp/repos.d", "/etc/pki/trust/anchors"
	}
	return "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"
}

func (d *driver) configVolumes() []corev1.Volume {
	var all []corev1.Volume
	for _, c := range d.configs() {
		all = append(all, fromConfigMap(c.volume, c.configMap))
	}
	if d.set.Spec.LicensingSecret != "" {
		all = append(all, corev1.Volume{Name: "license", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: d.set.Spec.LicensingSecret},
		}})
	}
	return all
}

// configMounts returns one mount per file, without hiding the image's files.
func (d *driver) configMounts() []corev1.VolumeMount {
	var all []corev1.VolumeMount
	for _, c := range d.configs() {
		for _, key := range d.in.Keys[configMap(c.configMap)] {
			all = append(all, corev1.VolumeMount{Name: c.volume, MountPath: path.Join(c.folder, key), SubPath: key, ReadOnly: true})
		}
	}
	for _, key := range d.in.Keys[secret(d.set.Spec.LicensingSecret)] {
		switch key {
		case "gridd.conf":
			all = append(all, corev1.VolumeMount{Name: "license", MountPath: "/drivers/" + key, SubPath: key, ReadOnly: true})
		case "client_configuration_token.tok":
			all = append(all, corev1.VolumeMount{Name: "license", MountPath: "/drivers/ClientConfigToken/" + key, SubPath: key, ReadOnly: true})
		}
	}
	return all
}
