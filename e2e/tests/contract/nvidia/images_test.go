package nvidia

import (
	"os"
	"path/filepath"

	"github.com/tessera-gpu/tessera/e2e/tests/contract/machine"
	"github.com/tessera-gpu/tessera/installer/render"
)

// variant is one of NVIDIA's driver images, and a machine that it is for.
type variant struct {
	// name is the folder of the entry point below driver-container.
	name string
	host render.Host
	// precompiled and vgpu are the kinds of driver sets that the installer renders.
	precompiled, vgpu bool
	// fast reports whether the entry point keeps the modules of a driver with the same digest.
	fast bool
	// network is a file pattern in the place of the package repositories of a machine without internet access.
	network string
}

const (
	ubuntuKernel = "6.8.0-60-generic"
	rhelKernel   = "5.14.0-570.12.1.el9_6.x86_64"
)

func variants() []variant {
	return []variant{
		{name: "ubuntu22.04", host: render.Host{OS: "ubuntu22.04", Kernel: ubuntuKernel}, fast: true, network: "/etc/apt/sources.list.d/*.list"},
		{name: "ubuntu24.04", host: render.Host{OS: "ubuntu24.04", Kernel: ubuntuKernel}, fast: true, network: "/etc/apt/sources.list.d/*.list"},
		{name: "rhel9", host: render.Host{OS: "rhel9.6", Kernel: rhelKernel}, fast: true, network: "/etc/yum.repos.d/*.list"},
		{name: "ubuntu22.04/precompiled", host: render.Host{OS: "ubuntu22.04", Kernel: ubuntuKernel}, precompiled: true, network: "/etc/apt/sources.list.d/*.list"},
		{name: "ubuntu24.04/precompiled", host: render.Host{OS: "ubuntu24.04", Kernel: ubuntuKernel}, precompiled: true, network: "/etc/apt/sources.list.d/*.list"},
		{name: "rhel9/precompiled", host: render.Host{OS: "rhel9.6", Kernel: rhelKernel}, precompiled: true},
		{name: "vgpu-manager/ubuntu24.04", host: render.Host{OS: "ubuntu24.04", Kernel: ubuntuKernel}, vgpu: true, network: "/etc/apt/sources.list.d/*.list"},
	}
}

// osRelease is the os-release(5) of a machine.
func (v variant) osRelease() string {
	if v.host.OS == "rhel9.6" {
		return "ID=rhel\nVERSION_ID=9.6\n"
	}
	return "ID=ubuntu\nVERSION_ID=" + v.host.OS[len("ubuntu"):] + "\n"
}

// Versions of the driver.
const (
	version = "580.105.08"
	older   = "570.195.03"
)

// image builds a driver image: the entry point, unchanged, where the Dockerfile has it (ubuntu24.04/Dockerfile:78), and the variables that the Dockerfile
// sets (ubuntu24.04/Dockerfile:51-67).
func (s *stage) image(v variant, version string) (machine.Image, error) {
	folder := filepath.Join(s.images, filepath.Base(v.name)+"-"+filepath.Base(filepath.Dir(v.name))+"-"+version)
	image, err := machine.BuildImage(folder, s.recorder, v.host.OS == "rhel9.6")
	if err != nil {
		return image, err
	}
	source := filepath.Join(s.files, "driver-container", v.name)
	for name, to := range map[string]string{"nvidia-driver": "usr/local/bin/nvidia-driver", "common.sh": "usr/local/bin/common.sh", "install.sh": "tmp/install.sh"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if os.IsNotExist(err) && name != "nvidia-driver" {
			continue
		}
		if err != nil {
			return image, err
		}
		if err := os.WriteFile(filepath.Join(folder, to), text, 0o755); err != nil {
			return image, err
		}
	}
	branch := version[:3]
	image.Env = []string{
		"TARGETARCH=amd64", "DRIVER_VERSION=" + version, "DRIVER_BRANCH=" + branch, "DRIVER_TYPE=passthrough", "VGPU_LICENSE_SERVER_TYPE=NLS",
		"DISABLE_VGPU_VERSION_CHECK=true", "NVIDIA_VISIBLE_DEVICES=void",
	}
	files := map[string]string{"drivers/.version": version, "drivers/NVIDIA-Linux-x86_64-" + version + ".run": "exec nvidia-run \"$@\"\n"}
	switch {
	case v.vgpu:
		image.Env = append(image.Env, "DRIVER_ARCH=x86_64", "CONTRACT_VGPU=1")
		files["drivers/NVIDIA-Linux-x86_64-"+version+"-vgpu-kvm.run"] = "exec nvidia-run vgpu-kvm \"$@\"\n"
	case v.precompiled && v.host.OS == "rhel9.6":
		// Its image has the modules, programs and firmware (rhel9/precompiled/nvidia-driver:234-244).
		for _, module := range []string{"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-peermem"} {
			files["usr/lib/modules/"+rhelKernel+"/kernel/drivers/video/"+module+".ko"] = version
		}
		files["usr/lib/nvidia/version"] = version
		files["opt/lib/firmware/nvidia/"+version+"/gsp_ga10x.bin"] = "firmware"
		fallthrough
	case v.precompiled:
		if err := s.link(folder, "nvidia-installer", "nvidia-smi", "nvidia-persistenced", "nv-fabricmanager"); err != nil {
			return image, err
		}
	}
	for path, text := range files {
		if err := writeFile(filepath.Join(folder, path), text); err != nil {
			return image, err
		}
	}
	return image, nil
}

// link installs replacements of programs in an image.
func (s *stage) link(folder string, names ...string) error {
	for _, name := range names {
		if err := os.Symlink("/usr/lib/contract/recorder", filepath.Join(folder, "usr/bin", name)); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o755)
}
