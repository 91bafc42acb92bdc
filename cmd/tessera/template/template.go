package template

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/wire"
)

// placeholder is a part of every placeholder of a text that only a node has.
const placeholder = "template"

// unknownVersion is the placeholder of a version.
const unknownVersion = "0"

// versions are those of the driver of the node; empty if they are unknown.
type versions struct{ driver, cuda string }

// validate returns an error that names the flag with an invalid version.
func (v versions) validate() error {
	for _, flag := range []struct{ name, value, example string }{{"driver-version", v.driver, "580.65.06"}, {"cuda-version", v.cuda, "13.0"}} {
		if _, err := version.ParseGeneric(flag.value); flag.value != "" && (err != nil || strings.HasPrefix(flag.value, "v")) {
			return fmt.Errorf("--%s %q: must be a version such as %s", flag.name, flag.value, flag.example)
		}
	}
	return nil
}

// template is what a new node would publish.
type template struct {
	machine string
	node    gpu.Node
	driver  string
	pool    wire.Pool
	// unknown are the attributes whose values are placeholders.
	unknown []resourceapi.QualifiedName
}

// newTemplate encodes the machine as the agent of a new node would.
func newTemplate(m catalog.Machine, o wire.Options, known versions) (template, error) {
	node, err := m.Node(placeholder)
	if err != nil {
		return template{}, err
	}
	t := template{
		machine: m.Name, node: node, driver: o.Driver,
		unknown: []resourceapi.QualifiedName{wire.UUID, wire.ParentUUID, wire.PCIBusID, wire.PCIeRoot, wire.NUMANode, wire.Minor, wire.Clique},
	}
	replaceIdentities(&t.node)
	t.node.DriverVersion, t.node.CUDAVersion = cmp.Or(known.driver, unknownVersion), cmp.Or(known.cuda, unknownVersion)
	if known.driver == "" {
		t.unknown = append(t.unknown, wire.DriverVersion)
	}
	if known.cuda == "" {
		t.unknown = append(t.unknown, wire.CUDADriverVersion)
	}
	if t.pool, err = wire.Encode(t.node, o); err != nil {
		return template{}, err
	}
	t.unknown = slices.DeleteFunc(t.unknown, func(name resourceapi.QualifiedName) bool { return !t.publishes(name) })
	return t, nil
}

// publishes reports whether a device has the attribute.
func (t template) publishes(name resourceapi.QualifiedName) bool {
	for _, s := range t.pool.Slices {
		for _, d := range s.Devices {
			if _, has := d.Attributes[name]; has {
				return true
			}
		}
	}
	return false
}

// replaceIdentities replaces what no two nodes share by placeholders, equal ones by equal ones. NUMA nodes and device minors keep the machine's numbers:
// they are integers, and usual.
func replaceIdentities(n *gpu.Node) {
	var roots []string
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if !slices.Contains(roots, g.PCIeRoot) {
			roots = append(roots, g.PCIeRoot)
		}
		g.PCI = fmt.Sprintf("%s-%d", placeholder, i)
		g.UUID = fmt.Sprintf("GPU-%s-%d", placeholder, i)
		if g.PCIeRoot != "" {
			g.PCIeRoot = fmt.Sprintf("pci-%s-%d", placeholder, slices.Index(roots, g.PCIeRoot))
		}
		if g.Clique != "" {
			g.Clique = placeholder + ".0" // a node is in one clique
		}
	}
}

// list returns the ResourceSlices as kubectl prints several objects.
func (t template) list() any {
	list := resourceapi.ResourceSliceList{TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSliceList"}}
	for i, s := range t.pool.Slices {
		list.Items = append(list.Items, resourceapi.ResourceSlice{
			TypeMeta:   metav1.TypeMeta{APIVersion: list.APIVersion, Kind: "ResourceSlice"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02d", t.pool.Name, i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: t.driver, NodeName: &t.node.Name, SharedCounters: s.SharedCounters, Devices: s.Devices,
				Pool: resourceapi.ResourcePool{Name: t.pool.Name, Generation: 1, ResourceSliceCount: int64(len(t.pool.Slices))},
			},
		})
	}
	return list
}
