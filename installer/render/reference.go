package render

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Absent is the error for a missing ConfigMap or Secret that a driver requires. The driver waits for it.
type Absent struct {
	// Reference is kind/name, Field the field of the driver that refers to it.
	Reference, Namespace, Field string
}

// Error names the missing object and what to do.
func (a *Absent) Error() string {
	kind, name, _ := strings.Cut(a.Reference, "/")
	return fmt.Sprintf("%s %s/%s, referenced by %s, does not exist; create it, or remove the field", kind, a.Namespace, name, a.Field)
}

// References returns the ConfigMaps and Secrets that policies and drivers refer to, as kind/name, deduplicated and sorted: the keys of
// Input.Contents.
func References(policy v1alpha1.ClusterPolicySpec, drivers []v1alpha1.DriverSpec) []string {
	var all []string
	if policy.DCGMExporter.Config != "" {
		all = append(all, configMap(policy.DCGMExporter.Config))
	}
	if policy.VGPUDeviceManager.Config.Name != "" {
		all = append(all, configMap(policy.VGPUDeviceManager.Config.Name))
	}
	vgpu := v1alpha1.DriverSpec{Component: policy.VGPUManager.Component}
	for _, d := range slices.Concat([]v1alpha1.DriverSpec{policy.Driver, vgpu}, drivers) {
		for _, f := range files(d) {
			all = append(all, f.reference)
		}
		for _, c := range components(d) {
			for _, e := range c.component.Env {
				if reference, _ := source(e); reference != "" {
					all = append(all, reference)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func configMap(name string) string { return "ConfigMap/" + name }
func secret(name string) string    { return "Secret/" + name }

// source returns the ConfigMap or Secret of a variable, and whether it is optional.
func source(e corev1.EnvVar) (reference string, optional bool) {
	switch {
	case e.ValueFrom == nil:
	case e.ValueFrom.ConfigMapKeyRef != nil:
		ref := e.ValueFrom.ConfigMapKeyRef
		return configMap(ref.Name), ref.Optional != nil && *ref.Optional
	case e.ValueFrom.SecretKeyRef != nil:
		ref := e.ValueFrom.SecretKeyRef
		return secret(ref.Name), ref.Optional != nil && *ref.Optional
	}
	return "", false
}

// file is a ConfigMap or Secret that a driver refers to.
type file struct {
	// field is the field that refers to it, key its key in the digest.
	field, key, reference string
}

// files returns the references of a driver, in order.
func files(d v1alpha1.DriverSpec) []file {
	var all []file
	add := func(name, field, key string, reference func(string) string) {
		if name != "" {
			all = append(all, file{field, key, reference(name)})
		}
	}
	add(d.KernelModuleConfig, "kernelModuleConfig", "modules.config", configMap)
	add(d.RepoConfig, "repoConfig", "repositories", configMap)
	add(d.CertConfig, "certConfig", "certificates", configMap)
	add(d.LicensingSecret, "licensingSecret", "license", secret)
	add(d.SecretEnv, "secretEnv", "secret", secret)
	return all
}

// part is a container of a driver pod.
type part struct {
	// name is the part's name in fields and in the digest, empty for the driver.
	name      string
	component v1alpha1.Component
}

// components returns the enabled parts of a driver, the driver first.
func components(d v1alpha1.DriverSpec) []part {
	all := []part{{"", d.Component}}
	for _, p := range []part{{"rdma", d.RDMA.Component}, {"gds", d.GDS}, {"gdrcopy", d.GDRCopy}} {
		if p.component.Chosen() {
			all = append(all, p)
		}
	}
	return all
}

// tag matches valid image tags.
var tag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// driverImage returns the image of a driver: <image>:<version>-<os>, or <image>:<version>-<kernel>-<os> if precompiled. A reference with a digest is
// unchanged. Operating system and kernel are those of the set's nodes.
func driverImage(in Input, set DriverSet) (string, error) {
	if set.VGPU {
		return companionImage("vgpuManager", cmp.Or(set.Spec.Image, in.Images.VGPUManager), set.Host)
	}
	image := cmp.Or(set.Spec.Image, in.Images.Driver)
	version := cmp.Or(set.Spec.Version, in.Images.DriverVersion)
	var wrong string
	switch {
	case image == "":
		wrong = "the release has no default driver image; set image"
	case strings.Contains(image, "@"):
		return image, nil
	case tagged(image):
		wrong = fmt.Sprintf("image %s has a tag; remove the tag and set version", image)
	case version == "":
		wrong = "the release has no default driver version; set version"
	case set.Host.OS == "":
		wrong = "the discovery has not reported the operating system of the node yet"
	case set.Spec.UsePrecompiled && set.Host.Kernel == "":
		wrong = "the discovery has not reported the kernel of the node yet"
	}
	if wrong != "" {
		return "", fmt.Errorf("determine the driver's image: %s", wrong)
	}
	parts := []string{version, set.Host.OS}
	if set.Spec.UsePrecompiled {
		parts = []string{version, set.Host.Kernel, set.Host.OS}
	}
	name := strings.Join(parts, "-")
	if !tag.MatchString(name) {
		return "", fmt.Errorf("determine the driver's image: %q is not a valid image tag; set the image by its digest", name)
	}
	return image + ":" + name, nil
}

// companionImages returns the images of gds and gdrcopy, empty if disabled.
func companionImages(in Input, set DriverSet) (gds, gdrcopy string, err error) {
	if set.Spec.GDS.Chosen() {
		if gds, err = companionImage("gds", cmp.Or(set.Spec.GDS.Image, in.Images.GDS), set.Host); err != nil {
			return "", "", err
		}
	}
	if set.Spec.GDRCopy.Chosen() {
		gdrcopy, err = companionImage("gdrcopy", cmp.Or(set.Spec.GDRCopy.Image, in.Images.GDRCopy), set.Host)
	}
	return gds, gdrcopy, err
}

// companionImage returns an image that is built for an operating system; field is the policy field that can set it.
func companionImage(field, image string, host Host) (string, error) {
	if image == "" {
		return "", fmt.Errorf("determine the image of %s: the release has no default; set %s.image", field, field)
	}
	return hostImage(image, host), nil
}

// hostImage returns the image for an operating system, by NVIDIA's tag convention: the tag ends with the operating system, which is appended if
// missing. A reference without a tag or with a digest is unchanged.
func hostImage(image string, host Host) string {
	if !tagged(image) || strings.Contains(image, "@") || host.OS == "" || strings.HasSuffix(image, "-"+host.OS) {
		return image
	}
	return image + "-" + host.OS
}

// tagged reports whether a reference has a tag. The port of a registry is not a tag.
func tagged(image string) bool {
	return strings.Contains(image[strings.LastIndex(image, "/")+1:], ":")
}
