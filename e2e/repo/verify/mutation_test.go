package verify

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// mutations calls visit with copies of the object, each with another value in one field. Every field of the type is changed, below pointers, in a first
// and in an additional element of lists, and in a new entry of maps; pointers, lists and maps are removed as well. A field that a new version of the API
// adds is therefore included.
func mutations[T any](t *testing.T, base *T, texts []string, visit func(field string, changed *T)) {
	t.Helper()
	m := mutator{texts: texts, seen: map[reflect.Type]int{}}
	original, err := json.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	m.visit = func(path string, set func(root reflect.Value)) {
		changed := new(T)
		if err := json.Unmarshal(original, changed); err != nil {
			t.Fatal(err)
		}
		set(reflect.ValueOf(changed).Elem())
		visit(path, changed)
	}
	m.walk(reflect.TypeFor[T](), "", func(root reflect.Value) reflect.Value { return root })
}

// mutator walks over a type. place returns the value at the current path in an object, and creates what is missing on the way.
type mutator struct {
	texts []string
	// seen counts the occurrences of a type on the current path: a type that contains itself is visited once.
	seen  map[reflect.Type]int
	visit func(path string, set func(root reflect.Value))
}

type place func(root reflect.Value) reflect.Value

func (m *mutator) walk(of reflect.Type, path string, at place) {
	if m.seen[of] > 0 {
		return
	}
	m.seen[of]++
	defer func() { m.seen[of]-- }()
	if leaf, ok := leaves[of]; ok {
		m.set(path, at, leaf)
		return
	}
	switch of.Kind() { //nolint:exhaustive // other kinds are a failure of the test
	case reflect.Struct:
		for field := range of.Fields() {
			if field.IsExported() {
				m.walk(field.Type, path+"."+field.Name, func(root reflect.Value) reflect.Value { return at(root).FieldByIndex(field.Index) })
			}
		}
	case reflect.Pointer:
		m.set(path, at, reflect.Zero(of).Interface())
		m.walk(of.Elem(), path, func(root reflect.Value) reflect.Value {
			v := at(root)
			if v.IsNil() {
				v.Set(reflect.New(of.Elem()))
			}
			return v.Elem()
		})
	case reflect.Slice:
		m.set(path, at, reflect.Zero(of).Interface())
		for name, add := range map[string]bool{"[0]": false, "[+]": true} {
			m.walk(of.Elem(), path+name, func(root reflect.Value) reflect.Value {
				v := at(root)
				if add || v.Len() == 0 {
					v.Set(reflect.Append(v, reflect.Zero(of.Elem())))
				}
				return v.Index(map[bool]int{true: v.Len() - 1}[add])
			})
		}
	case reflect.Map:
		m.set(path, at, reflect.Zero(of).Interface())
		m.visit(path+"{+}", func(root reflect.Value) {
			v := at(root)
			if v.IsNil() {
				v.Set(reflect.MakeMap(of))
			}
			v.SetMapIndex(reflect.ValueOf(planted).Convert(of.Key()), reflect.Zero(of.Elem()))
		})
	case reflect.String:
		for _, text := range m.texts {
			m.set(path+"="+text, at, reflect.ValueOf(text).Convert(of).Interface())
		}
	case reflect.Bool:
		m.set(path+"=true", at, true)
		m.set(path+"=false", at, false)
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8:
		m.set(path+"=77", at, reflect.ValueOf(77).Convert(of).Interface())
	default:
		panic(fmt.Sprintf("%s: no values for %v", path, of))
	}
}

// set visits the object with the value in the field.
func (m *mutator) set(path string, at place, value any) {
	m.visit(path, func(root reflect.Value) {
		v := at(root)
		v.Set(reflect.ValueOf(value).Convert(v.Type()))
	})
}

// planted is the name of an object that a mutated field references.
const planted = "planted"

// leaves are the types that are changed as a whole.
var leaves = map[reflect.Type]any{
	reflect.TypeFor[metav1.Time]():               metav1.Unix(1, 0),
	reflect.TypeFor[metav1.Duration]():           metav1.Duration{Duration: 1},
	reflect.TypeFor[resource.Quantity]():         resource.MustParse("77"),
	reflect.TypeFor[intstr.IntOrString]():        intstr.FromString(planted),
	reflect.TypeFor[runtime.RawExtension]():      runtime.RawExtension{Raw: []byte("{}")},
	reflect.TypeFor[metav1.ManagedFieldsEntry](): metav1.ManagedFieldsEntry{Manager: planted},
}

// TestMutationsReachEveryField checks the generator on a type with each kind of field.
func TestMutationsReachEveryField(t *testing.T) {
	type inner struct{ Name string }
	type outer struct {
		Text  string
		Flag  *bool
		List  []inner
		Map   map[string]string
		Below *inner
	}
	var got []string
	base := &outer{List: []inner{{"kept"}}}
	mutations(t, base, []string{"x"}, func(field string, changed *outer) {
		got = append(got, field)
		if reflect.DeepEqual(base, changed) != (field == ".Flag" || field == ".Map" || field == ".Below") {
			t.Errorf("%s: %+v", field, changed)
		}
	})
	text := strings.Join(got, " ") + " "
	for _, field := range []string{".Text=x", ".Flag", ".Flag=true", ".Flag=false", ".List", ".List[0].Name=x", ".List[+].Name=x", ".Map", ".Map{+}", ".Below", ".Below.Name=x"} {
		if !strings.Contains(text, field+" ") {
			t.Errorf("%s is not among %s", field, text)
		}
	}
}
