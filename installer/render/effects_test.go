package render_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/crds"
	"github.com/tessera-gpu/tessera/installer/render"
)

// TestEveryFieldHasAnEffect checks that each field of ClusterPolicy and NVIDIADriver has a tested effect: on a rendered object, here, or on the
// operations on a node, in another package. The fields are those of the CRDs: a field without a case fails, and a case without a field.
func TestEveryFieldHasAnEffect(t *testing.T) {
	for kind, cases := range map[string][]effect{"ClusterPolicy": policyEffects(), "NVIDIADriver": driverEffects("spec", ownDriver)} {
		t.Run(kind, func(t *testing.T) {
			fields, err := crds.Leaves(kind)
			if err != nil {
				t.Fatal(err)
			}
			left := map[string]bool{}
			for _, field := range fields {
				left[field] = true
			}
			for _, c := range cases {
				if !left[c.field] {
					t.Errorf("%s: no such field, or a second case for it", c.field)
				}
				delete(left, c.field)
				t.Run(c.field, func(t *testing.T) { c.check(t) })
			}
			for _, field := range sorted(elsewhere(kind)) {
				if !left[field] {
					t.Errorf("%s: no such field, or a second case for it", field)
				}
				delete(left, field)
				t.Run(field, func(t *testing.T) { elsewhere(kind)[field].check(t, field) })
			}
			for _, field := range fields {
				if left[field] {
					t.Errorf("%s: no test shows what it does: add a case here, or remove the field", field)
				}
			}
		})
	}
}

// effect is the effect of a change of one field.
type effect struct {
	field string
	// base is the cluster before the change, everything() by default.
	base   func() render.Input
	change func(*render.Input)
	// object is kind/name; a name that ends with * is that of the one object that begins so.
	object string
	// path is a JSONPath below the object; empty: whether the object is there. file, when set, is the key of a ConfigMap, and the path is one below its
	// content.
	path, file string
	// want is the value at the path after the change, as JSON without quotes around a text. The value before must differ.
	want string
}

func (e effect) check(t *testing.T) {
	t.Helper()
	in := base()
	if e.base != nil {
		in = e.base()
	}
	if before := e.find(t, in); before == e.want {
		t.Fatalf("%s %s is %s before the change, too: the case shows nothing", e.object, e.path, before)
	}
	e.change(&in)
	if after := e.find(t, in); after != e.want {
		t.Errorf("%s %s is %q, want %q", e.object, e.path, after, e.want)
	}
}

// base is everything, with drivers for one operating system.
func base() render.Input {
	in := everything()
	in.Drivers = []render.DriverSet{in.Drivers[0], in.Drivers[2]}
	return in
}

// find returns the value at the path.
func (e effect) find(t *testing.T, in render.Input) string {
	t.Helper()
	object := e.pick(t, objects(t, in))
	if e.path == "" || object == nil {
		return fmt.Sprint(object != nil)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if e.file != "" {
		text = []byte(object.(*corev1.ConfigMap).Data[e.file])
	}
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	path := jsonpath.New(e.field).AllowMissingKeys(true)
	if err := path.Parse("{" + e.path + "}"); err != nil {
		t.Fatal(err)
	}
	results, err := path.FindResults(tree)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, result := range results[0] {
		text, err := json.Marshal(result.Interface())
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, strings.Trim(string(text), `"`))
	}
	return strings.Join(values, " ")
}

// pick returns the object, nil when there is none.
func (e effect) pick(t *testing.T, all []client.Object) client.Object {
	t.Helper()
	var found client.Object
	begin, several := strings.CutSuffix(e.object, "*")
	for _, object := range all {
		if name := title(object); name != e.object && (!several || !strings.HasPrefix(name, begin)) {
			continue
		}
		if found != nil {
			t.Fatalf("several objects are %s", e.object)
		}
		found = object
	}
	return found
}

// at returns the JSONPath of something in a container of the pods.
func at(container, rest string) string {
	list := "containers"
	if container == "preflight" || container == "unload" {
		list = "initContainers"
	}
	return `.spec.template.spec.` + list + `[?(@.name=="` + container + `")]` + rest
}

const pod = ".spec.template.spec"

// component is the path of a Component and its rendered object.
type component struct {
	field, object, container string
	// image is what the image registry.example/own/image becomes.
	image string
	// in returns the component.
	in       func(*render.Input) *v1alpha1.Component
	switched switched
}

// effects are those of the fields that all components have.
func (c component) effects() []effect {
	with := func(change func(own *v1alpha1.Component, taste v1alpha1.Component)) func(*render.Input) {
		return func(in *render.Input) { change(c.in(in), taste()) }
	}
	own := "registry.example/own/image"
	if strings.Contains(c.image, ":1") {
		own += ":1"
	}
	all := []effect{
		{field: "image", path: at(c.container, ".image"), want: c.image, change: with(func(o *v1alpha1.Component, _ v1alpha1.Component) { o.Image = own })},
		{field: "imagePullPolicy", path: at(c.container, ".imagePullPolicy"), want: "Always", change: with(func(o *v1alpha1.Component, t v1alpha1.Component) { o.ImagePullPolicy = t.ImagePullPolicy })},
		{field: "imagePullSecrets", path: pod + ".imagePullSecrets[*].name", want: "own", change: with(func(o *v1alpha1.Component, t v1alpha1.Component) { o.ImagePullSecrets = t.ImagePullSecrets })},
		{field: "resources", path: at(c.container, ".resources.limits.memory"), want: "1Gi", change: with(func(o *v1alpha1.Component, t v1alpha1.Component) { o.Resources = t.Resources })},
		{field: "env", path: at(c.container, `.env[?(@.name=="OWN")].value`), want: "yes", change: with(func(o *v1alpha1.Component, t v1alpha1.Component) { o.Env = t.Env })},
		{field: "args", path: at(c.container, ".args[-1:]"), want: "--own", change: with(func(o *v1alpha1.Component, t v1alpha1.Component) { o.Args = t.Args })},
		{field: "tolerations", path: pod + `.tolerations[?(@.key=="own")].operator`, want: "Exists", change: with(func(o *v1alpha1.Component, t v1alpha1.Component) { o.Tolerations = t.Tolerations })},
	}
	off := effect{field: "enabled", change: with(func(o *v1alpha1.Component, _ v1alpha1.Component) { o.Enabled = new(false) })}
	switch c.switched {
	case elsewhereSwitched:
	case wholeObject:
		off.want = "false"
		all = append(all, off)
	case oneContainer:
		off.path, off.want = at(c.container, ".name"), ""
		all = append(all, off)
	}
	for i := range all {
		all[i].field, all[i].object = c.field+"."+all[i].field, c.object
	}
	return all
}

// switched is the object that is absent if a component is disabled.
type switched int

const (
	// elsewhereSwitched: nodes are not given the label of its pods any more, which the installer decides by node.
	elsewhereSwitched switched = iota
	wholeObject
	oneContainer
)
