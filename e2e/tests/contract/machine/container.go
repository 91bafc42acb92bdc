package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mount is a volume mount as package recorder reads it: Source is a path of the machine.
type mount struct {
	Source, Target string
	ReadOnly       bool
	Propagation    string
}

// container is what package recorder reads to start a container.
type container struct {
	Folder, Image, Layer string
	Mounts               []mount
	Args, Env            []string
	Dir                  string
	Privileged           bool
}

// config returns what the container runtime gets for a container.
func (p *Pod) config(c corev1.Container) (container, error) {
	image, found := p.images[c.Image]
	if !found {
		return container{}, fmt.Errorf("image %s does not exist", c.Image)
	}
	p.machine.layers++
	config := container{
		Folder: p.machine.folder, Image: image.Folder, Dir: image.WorkingDir,
		Layer: filepath.Join(p.machine.folder, "layers", fmt.Sprint(p.machine.layers)),
		Args:  slices.Concat(image.Entrypoint, c.Args),
	}
	if c.Command != nil {
		config.Args = slices.Concat(c.Command, c.Args)
	}
	if s := c.SecurityContext; s != nil && s.Privileged != nil {
		config.Privileged = *s.Privileged
	}
	env, err := p.env(c, image)
	if err != nil {
		return container{}, err
	}
	config.Env = env
	for _, m := range c.VolumeMounts {
		mounted, err := p.mount(m)
		if err != nil {
			return container{}, fmt.Errorf("volume %s: %w", m.Name, err)
		}
		config.Mounts = append(config.Mounts, mounted)
	}
	slices.SortStableFunc(config.Mounts, func(a, b mount) int { return strings.Count(a.Target, "/") - strings.Count(b.Target, "/") })
	return config, nil
}

// env returns the variables of a container: those of the image, of Secrets, and of the spec. Nothing else reaches it but what the recorder needs.
func (p *Pod) env(c corev1.Container, image Image) ([]string, error) {
	env := append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "BASH_ENV=" + tracePath, "CONTRACT_CONTAINER=" + c.Name,
	}, image.Env...)
	for _, from := range c.EnvFrom {
		data, found := p.configs[from.SecretRef.Name]
		if !found {
			return nil, fmt.Errorf("secret %s not found", from.SecretRef.Name)
		}
		for name, value := range data {
			env = append(env, name+"="+value)
		}
	}
	fields := map[string]string{"spec.nodeName": "node", "status.hostIP": "192.0.2.1"}
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			value = fields[e.ValueFrom.FieldRef.FieldPath]
		}
		env = append(env, e.Name+"="+value)
	}
	return env, nil
}

// mount resolves a volume of the pod.
func (p *Pod) mount(m corev1.VolumeMount) (mount, error) {
	i := slices.IndexFunc(p.spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
	if i < 0 {
		return mount{}, errors.New("not found")
	}
	mounted := mount{Target: m.MountPath, ReadOnly: m.ReadOnly}
	if m.MountPropagation != nil {
		mounted.Propagation = string(*m.MountPropagation)
	}
	switch v := p.spec.Volumes[i]; {
	case v.HostPath != nil:
		mounted.Source = v.HostPath.Path
		return mounted, p.prepare(*v.HostPath)
	case v.ConfigMap != nil:
		return p.file(mounted, v.ConfigMap.Name, m.SubPath)
	case v.Secret != nil:
		return p.file(mounted, v.Secret.SecretName, m.SubPath)
	default:
		return mount{}, errors.New("kind of volume is not supported")
	}
}

// file writes one key of a ConfigMap or Secret as a file of the machine.
func (p *Pod) file(m mount, name, key string) (mount, error) {
	text, found := p.configs[name][key]
	if !found {
		return mount{}, fmt.Errorf("%s has no key %q", name, key)
	}
	m.Source = "/var/lib/kubelet/" + name + "/" + key
	return m, p.machine.Write(m.Source, text)
}

// prepare checks or creates a path of the machine, as kubelet and containerd do by the type of the volume. Without a type a missing path becomes a
// folder, which sysfs refuses.
func (p *Pod) prepare(v corev1.HostPathVolumeSource) error {
	path := p.machine.path(v.Path)
	info, err := os.Stat(path)
	kind := corev1.HostPathUnset
	if v.Type != nil {
		kind = *v.Type
	}
	if err == nil {
		if folder := kind == corev1.HostPathDirectory || kind == corev1.HostPathDirectoryOrCreate; folder && !info.IsDir() {
			return fmt.Errorf("hostPath type check failed: %s is not a directory", v.Path)
		}
		return nil
	}
	switch {
	case strings.HasPrefix(v.Path, "/sys/") && kind != corev1.HostPathDirectory && kind != corev1.HostPathFile:
		return fmt.Errorf("CreateContainerError: mkdir %s: operation not permitted", v.Path)
	case kind == corev1.HostPathUnset, kind == corev1.HostPathDirectoryOrCreate:
		return os.MkdirAll(path, 0o755)
	case kind == corev1.HostPathFileOrCreate:
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644))
	default:
		return fmt.Errorf("hostPath type check failed: %s does not exist", v.Path)
	}
}
