package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// carry returns the fresh record with every field that only the old one has. These are the unknown fields, because this
// version writes all fields that it knows. The header of a newer version is kept.
func carry(fresh, old []byte) ([]byte, error) {
	into, err := fields(fresh)
	if err != nil {
		return nil, err
	}
	from, err := fields(old)
	if err != nil {
		return nil, err
	}
	var h header
	if err := json.Unmarshal(old, &h); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if h.Version > formatV1 {
		into["version"], into["readableBy"] = from["version"], from["readableBy"]
	}
	return json.Marshal(merge(into, from))
}

func fields(data []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return object, nil
}

// merge returns fresh with the unknown fields of old, at every depth. Elements of lists correspond if all their known
// fields are equal.
func merge(fresh, old any) any {
	switch fresh := fresh.(type) {
	case map[string]any:
		before, ok := old.(map[string]any)
		if !ok {
			return fresh
		}
		for name, value := range before {
			if _, known := fresh[name]; known {
				value = merge(fresh[name], value)
			}
			fresh[name] = value
		}
		return fresh
	case []any:
		before, ok := old.([]any)
		if !ok {
			return fresh
		}
		for i, element := range fresh {
			fresh[i] = merge(element, counterpart(element, before))
		}
		return fresh
	}
	return fresh
}

// counterpart returns the element of the list that has all fields of the given one; nil if there is none.
func counterpart(element any, list []any) any {
	for _, candidate := range list {
		if covers(candidate, element) {
			return candidate
		}
	}
	return nil
}

// covers reports whether whole has all values of part, at every depth.
func covers(whole, part any) bool {
	switch part := part.(type) {
	case map[string]any:
		fields, ok := whole.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range part {
			if other, has := fields[name]; !has || !covers(other, value) {
				return false
			}
		}
		return true
	case []any:
		elements, ok := whole.([]any)
		if !ok || len(elements) != len(part) {
			return false
		}
		for i := range part {
			if !covers(elements[i], part[i]) {
				return false
			}
		}
		return true
	}
	return whole == part
}
