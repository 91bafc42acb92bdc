package output

import (
	"strings"
	"testing"
)

type thing struct {
	Name  string   `json:"name"`
	Bytes uint64   `json:"bytes,omitempty"`
	Parts []string `json:"parts,omitempty"`
}

// things is the output of a verb with two items.
func things() Result {
	list := []thing{{"a", 85520809984, []string{"x", "y"}}, {Name: "b"}}
	return Result{
		Value: map[string]any{"kind": "ThingList", "items": list},
		Rows:  []Row{{"a", "Thing a", list[0]}, {"b", "Thing b", list[1]}},
		Draw: func(s *Screen) {
			s.Table([]Column{{Header: "NAME"}, {Header: "BYTES", Wide: true}, {Header: "PARTS"}}, [][]string{{"a", "85520809984", "x,y"}, {"b", "", ""}})
		},
	}
}

func TestFormats(t *testing.T) {
	tests := map[string]struct {
		flags Flags
		want  string
	}{
		"text":            {Flags{Format: Text}, "NAME   PARTS\na      x,y\nb      -\n"},
		"wide":            {Flags{Format: Wide}, "NAME   BYTES         PARTS\na      85520809984   x,y\nb      -             -\n"},
		"no headers":      {Flags{Format: Text, NoHeaders: true}, "a     x,y\nb     -\n"},
		"name":            {Flags{Format: Name}, "a\nb\n"},
		"jsonpath":        {Flags{Format: "jsonpath={.items[*].name} {.items[0].bytes}"}, "a b 85520809984"},
		"missing key":     {Flags{Format: "jsonpath={.items[1].bytes}"}, ""},
		"json of a path":  {Flags{Format: "jsonpath-as-json={.items[1]}"}, "[\n    {\n        \"name\": \"b\"\n    }\n]"},
		"custom columns":  {Flags{Format: "custom-columns=NAME:.name,SIZE:{.bytes},ALL:parts[*]"}, "NAME   SIZE          ALL\na      85520809984   x,y\nb      <none>        <none>\n"},
		"columns, silent": {Flags{Format: "custom-columns=NAME:.name", NoHeaders: true}, "a\nb\n"},
	}
	for name, test := range tests {
		var out strings.Builder
		if err := test.flags.Print(&out, things()); err != nil || strings.TrimSpace(out.String()) != strings.TrimSpace(test.want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, out.String(), test.want)
		}
	}
}

func TestInvalidFormats(t *testing.T) {
	for format, want := range map[Format]string{
		"xml":                    "must be one of text, wide, json, yaml, jsonpath",
		"name":                   "must be one of",
		"jsonpath":               "no template given",
		"jsonpath={.items":       "unclosed action",
		"jsonpath-file=/-/":      "no such file",
		"custom-columns=":        "HEADER:PATH",
		"custom-columns=a":       "HEADER:PATH",
		"custom-columns=A:{.x[}": "path of A",
	} {
		f := Flags{Format: format, formats: []Format{Text, Wide, JSON, YAML}, Color: "auto"}
		if err := f.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", format, err, want)
		}
	}
	if err := (&Flags{Format: Text, Color: "red"}).Validate(); err == nil || !strings.Contains(err.Error(), "--color") {
		t.Errorf("color: %v", err)
	}
}
