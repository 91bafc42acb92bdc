package action

import "testing"

func TestContainsFields(t *testing.T) {
	type object = map[string]any
	tests := map[string]struct {
		want, have any
		contained  bool
	}{
		"default added by the API server": {object{"a": "1"}, object{"a": "1", "b": "default"}, true},
		"changed field":                   {object{"a": "1"}, object{"a": "2"}, false},
		"removed field":                   {object{"a": "1"}, object{}, false},
		"empty fields":                    {object{"a": nil, "b": object{}, "c": []any{}}, object{}, true},
		"added element":                   {[]any{object{"name": "x"}}, []any{object{"name": "y"}, object{"name": "x", "more": "1"}}, true},
		"missing element":                 {[]any{object{"name": "x"}, object{"name": "y"}}, []any{object{"name": "x"}}, false},
		"added argument":                  {[]any{"a"}, []any{"a", "b"}, false},
		"different type":                  {object{"a": object{"b": "1"}}, object{"a": "1"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := containsFields(test.have, test.want); got != test.contained {
				t.Errorf("got %v", got)
			}
		})
	}
}
