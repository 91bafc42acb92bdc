package migrate

import (
	"regexp"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Reasons that many fields share.
const (
	otherProgram = "configures a program that Tessera replaces with its own image"
	noHostNet    = "has no counterpart: no operand uses the host network"
	fixedProbe   = "has no counterpart: the installer monitors the driver"
)

// componentRules are those of an operand whose program is the same here.
func componentRules(path string, component func(*conversion) *v1alpha1.Component) []rule {
	image := func(c *conversion, _ any) string { return c.image(path, component(c)) }
	return []rule{
		{path + ".enabled", into(func(c *conversion) **bool { return &component(c).Enabled })},
		{path + ".repository", image}, {path + ".image", image}, {path + ".version", image},
		{path + ".imagePullPolicy", into(func(c *conversion) *string { return (*string)(&component(c).ImagePullPolicy) })},
		{path + ".imagePullSecrets", into(func(c *conversion) *[]string { return &component(c).ImagePullSecrets })},
		{path + ".resources", wrapped("resources", component)},
		{path + ".args", into(func(c *conversion) *[]string { return &component(c).Args })},
		{path + ".env", wrapped("env", component)},
		{path + ".hostNetwork", none(noHostNet)},
	}
}

// wrapped takes over a value of Kubernetes' own types as the field of that name.
func wrapped(field string, component func(*conversion) *v1alpha1.Component) convert {
	return func(c *conversion, value any) string { return into(component)(c, map[string]any{field: value}) }
}

// image takes over a whole reference. The GPU Operator takes image for the whole of it where repository and version are empty.
func (c *conversion) image(path string, component *v1alpha1.Component) string {
	repository, image, version := c.textAt(path+".repository"), c.textAt(path+".image"), c.textAt(path+".version")
	switch {
	case image == "":
		return "has no effect without " + path + ".image. The image of the release is used"
	case version == "" && repository != "":
		return "has no effect without " + path + ".version. The image of the release is used; to change it, set the image with its tag"
	}
	component.Image = reference(join(repository, image), version)
	return ""
}

func join(repository, image string) string {
	if repository == "" {
		return image
	}
	return strings.TrimSuffix(repository, "/") + "/" + image
}

// reference is an image with its tag or digest.
func reference(image, version string) string {
	switch {
	case version == "":
		return image
	case strings.HasPrefix(version, "sha256:"):
		return image + "@" + version
	}
	return image + ":" + version
}

// driverVersion is a version, with -grid for the driver of a vGPU guest, and what may follow it in a tag.
var driverVersion = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+){0,2}(?:-grid)?)(-[\w.-]+)?$`)

// driverImage takes over the image of a driver: without a tag, which is made on each node, or with a digest.
func (c *conversion) driverImage(path string) string {
	if path != "" {
		path += "."
	}
	repository, image, version := c.textAt(path+"repository"), c.textAt(path+"image"), c.textAt(path+"version")
	switch {
	case image == "":
	case repository == "" && !strings.Contains(image, "/"):
		return "has no repository. The image of the release is used"
	default:
		name, tag := cutTag(join(repository, image))
		c.driver.Image = name
		if version == "" {
			version = tag
		}
	}
	return c.driverVersion(version)
}

// driverVersion takes over the version of a driver in a tag, or the digest in its place.
func (c *conversion) driverVersion(version string) string {
	if version == "" {
		return ""
	}
	if strings.HasPrefix(version, "sha256:") && c.driver.Image != "" {
		c.driver.Image += "@" + version
		return ""
	}
	found := driverVersion.FindStringSubmatch(version)
	if found == nil {
		return "is not a driver version: the tag is derived from the version, kernel and operating system of each node. Set spec.driver.version"
	}
	c.driver.Version = found[1]
	return ""
}

// cutTag splits a reference at its digest, or at the colon of its tag.
func cutTag(image string) (name, tag string) {
	if name, digest, found := strings.Cut(image, "@"); found {
		return name, digest
	}
	i := strings.LastIndex(image, ":")
	if i < 0 || strings.Contains(image[i:], "/") {
		return image, ""
	}
	return image[:i], image[i+1:]
}
