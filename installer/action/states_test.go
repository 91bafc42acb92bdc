package action

import "testing"

func TestStates(t *testing.T) {
	type object = map[string]any
	tests := map[string]struct {
		want, have any
		states     bool
	}{
		"what the API server adds":   {object{"a": "1"}, object{"a": "1", "b": "default"}, true},
		"what others changed":        {object{"a": "1"}, object{"a": "2"}, false},
		"what others removed":        {object{"a": "1"}, object{}, false},
		"nothing is stated":          {object{"a": nil, "b": object{}, "c": []any{}}, object{}, true},
		"an element that was added":  {[]any{object{"name": "x"}}, []any{object{"name": "y"}, object{"name": "x", "more": "1"}}, true},
		"an element that is missing": {[]any{object{"name": "x"}, object{"name": "y"}}, []any{object{"name": "x"}}, false},
		"an argument that was added": {[]any{"a"}, []any{"a", "b"}, false},
		"another type":               {object{"a": object{"b": "1"}}, object{"a": "1"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := states(test.want, test.have); got != test.states {
				t.Errorf("got %v", got)
			}
		})
	}
}
