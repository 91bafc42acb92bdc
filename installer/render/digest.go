package render

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Driver returns the driver of a set. Its digest decides whether a node must replace its driver. The digest covers everything that determines what is
// installed, including the contents of ConfigMaps and Secrets. It does not cover labels, tolerations, resources, pull secrets, the owner or the
// images of the installer. An error names what is missing; *Absent is a missing ConfigMap or Secret.
func Driver(in Input, set DriverSet) (v1alpha1.DesiredDriver, error) {
	in.Policy.Spec = in.Policy.Spec.Complete()
	return describe(in, complete(in, set))
}

// describe returns the driver of an input and a set with all defaults set.
func describe(in Input, set DriverSet) (v1alpha1.DesiredDriver, error) {
	image, err := driverImage(in, set)
	if err != nil {
		return v1alpha1.DesiredDriver{}, err
	}
	gds, gdrcopy, err := companionImages(in, set)
	if err != nil {
		return v1alpha1.DesiredDriver{}, err
	}
	var f fingerprint
	f.add("image", image)
	f.add("gds.image", gds)
	f.add("gdrcopy.image", gdrcopy)
	f.addPlace(in, set)
	f.addSettings(in, set)
	if err := f.addContents(in, set.Spec); err != nil {
		return v1alpha1.DesiredDriver{}, err
	}
	driver := v1alpha1.DesiredDriver{
		Source: v1alpha1.DriverContainer, Digest: f.sum(), Owner: set.Owner, Version: version(in, set), Image: image, OS: set.Host.OS,
	}
	if set.Spec.UsePrecompiled {
		driver.Kernel = set.Host.Kernel
	}
	return driver, nil
}

// complete sets the defaults of a set. The spec of a vGPU host driver is taken from the policy.
func complete(in Input, set DriverSet) DriverSet {
	if set.VGPU {
		set.Spec = v1alpha1.DriverSpec{Component: in.Policy.Spec.VGPUManager.Component}
	}
	set.Spec = set.Spec.Complete()
	return set
}

// version returns the driver version for display. It is empty for a vGPU host driver, whose version is part of its image tag.
func version(in Input, set DriverSet) string {
	if set.VGPU {
		return ""
	}
	return cmp.Or(set.Spec.Version, in.Images.DriverVersion)
}

// fingerprint is the input of a digest: one line per setting, with key and value. The keys are defined only here and are not field names, so a field
// may be renamed. Only values that differ from their default have a line, so a field may be added. The lines are sorted, so their order in this file
// does not matter. A changed key or default reinstalls the driver on every node of every cluster; the test with recorded digests detects that.
type fingerprint []string

func (f *fingerprint) add(key, value string) {
	if value != "" {
		*f = append(*f, key+"="+strconv.Quote(value))
	}
}

func (f *fingerprint) sum() string {
	slices.Sort(*f)
	sum := sha256.Sum256([]byte(strings.Join(*f, "\n")))
	return hex.EncodeToString(sum[:])
}

// addPlace adds the target of the driver: its kind, operating system and kernel.
func (f *fingerprint) addPlace(in Input, set DriverSet) {
	f.add("os", set.Host.OS)
	if set.Spec.UsePrecompiled {
		f.add("kernel", set.Host.Kernel)
	}
	if set.VGPU {
		f.add("vgpu", "host")
	}
	if p := paths(in); p.Root != "/" {
		f.add("root", p.Root)
	}
	if p := paths(in); p.DriverInstallDir != driverRoot {
		f.add("installDir", p.DriverInstallDir)
	}
}

// addSettings adds the installation settings.
func (f *fingerprint) addSettings(in Input, set DriverSet) {
	f.add("version", version(in, set))
	if set.Spec.KernelModuleType != v1alpha1.ModulesAuto {
		f.add("modules", string(set.Spec.KernelModuleType))
	}
	for _, p := range components(set.Spec) {
		if p.name != "" {
			f.add(p.name, "on")
		}
		for i, arg := range p.component.Args {
			f.add(fmt.Sprintf("%s.arg.%d", cmp.Or(p.name, "driver"), i), arg)
		}
	}
	if rdma := set.Spec.RDMA; rdma.Chosen() {
		f.add("rdma.image", rdma.Image) // default: the driver's image
		if rdma.UseHostMOFED {
			f.add("rdma.host", "on")
		}
	}
}

// addContents adds variables, and the contents but not the names of the ConfigMaps and Secrets that the driver refers to.
func (f *fingerprint) addContents(in Input, d v1alpha1.DriverSpec) error {
	for _, n := range files(d) {
		content, ok := in.Contents[n.reference]
		if !ok {
			return &Absent{Reference: n.reference, Namespace: in.Namespace, Field: n.field}
		}
		f.add("content."+n.key, content)
	}
	for _, p := range components(d) {
		for _, e := range p.component.Env {
			if err := f.addVariable(in, p.name, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fingerprint) addVariable(in Input, part string, e corev1.EnvVar) error {
	key := cmp.Or(part, "driver") + ".env." + e.Name
	if e.ValueFrom == nil {
		// An empty variable counts as well.
		f.add(key, "="+e.Value)
		return nil
	}
	from, err := json.Marshal(e.ValueFrom)
	if err != nil {
		return fmt.Errorf("read the variable %s: %w", e.Name, err)
	}
	f.add(key+".from", string(from))
	reference, optional := source(e)
	content, ok := in.Contents[reference]
	if reference != "" && !ok && !optional {
		return &Absent{Reference: reference, Namespace: in.Namespace, Field: strings.TrimPrefix(part+".env", ".")}
	}
	f.add(key+".content", content)
	return nil
}
