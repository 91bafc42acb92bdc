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

// Driver returns what the driver of a set is: its digest decides whether a node that has it needs a new one. The digest covers everything that
// decides what is installed, contents of ConfigMaps and Secrets included, and nothing else: not labels, tolerations, resources or pull secrets,
// not who owns it, not the images of the installer. An error names what is missing; *Absent is a ConfigMap or Secret.
func Driver(in Input, set DriverSet) (v1alpha1.DesiredDriver, error) {
	in.Policy.Spec = in.Policy.Spec.Complete()
	return describe(in, complete(in, set))
}

// describe does it for an input and a set that are complete.
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
	return v1alpha1.DesiredDriver{
		Source: v1alpha1.DriverContainer, Digest: f.sum(), Owner: set.Owner, Version: version(in, set), Image: image,
	}, nil
}

// complete sets the defaults of a set; the spec of a vGPU host driver is the policy's.
func complete(in Input, set DriverSet) DriverSet {
	if set.VGPU {
		set.Spec = v1alpha1.DriverSpec{Component: in.Policy.Spec.VGPUManager.Component}
	}
	set.Spec = set.Spec.Complete()
	return set
}

// version is told for people; that of a vGPU host driver stands in its image only.
func version(in Input, set DriverSet) string {
	if set.VGPU {
		return ""
	}
	return cmp.Or(set.Spec.Version, in.Images.DriverVersion)
}

// fingerprint is what a digest is made of: one line per decision, a key and a value. The keys are written here and nowhere else: they are not
// the names of fields, so that a field may be renamed; only what differs from its default has a line, so that a field may be added; and
// the lines are sorted, so that their order in this file is free. A key that is changed, and a default, reinstall the driver on every node of every
// cluster: the test with recorded digests fails.
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

// addPlace adds what the driver is for and where it goes.
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

// addSettings adds how it is installed.
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
		f.add("rdma.image", rdma.Image) // by default the driver's
		if rdma.UseHostMOFED {
			f.add("rdma.host", "on")
		}
	}
}

// addContents adds variables, and what stands in the ConfigMaps and Secrets that the driver names: not their names.
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
		// An empty variable is one, too.
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
