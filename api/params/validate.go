package params

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// sizeText is the compiled SizePattern.
var sizeText = regexp.MustCompile(SizePattern)

// validate returns the errors of parameters of the kind from the source. The value is as decoded from JSON, with whole numbers as int64.
func (k Kind) validate(source resourceapi.AllocationConfigSource, value map[string]any) field.ErrorList {
	value = maps.Clone(value)
	delete(value, "apiVersion")
	delete(value, "kind")
	return validateObject(nil, source, k.Fields, value)
}

// validateObject returns the errors of an object with the fields. at is its path; nil for the root.
func validateObject(at *field.Path, source resourceapi.AllocationConfigSource, fields []Field, value map[string]any) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(value)) {
		if !slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name }) {
			quoted := strconv.Quote(name)
			errs = append(errs, field.Forbidden(at.Child(quoted[1:len(quoted)-1]), "unknown field: "+Known(fields)))
		}
	}
	for _, f := range fields {
		here := at.Child(f.Name)
		switch v := value[f.Name]; {
		case v == nil && f.Required:
			errs = append(errs, field.Required(here, f.Demand()))
		case v == nil:
		case f.FromClass && source != resourceapi.AllocationConfigSourceClass:
			errs = append(errs, field.Forbidden(here, FromClassDemand))
		case f.When != nil && value[f.When.Field] != f.When.Value:
			errs = append(errs, field.Forbidden(here, f.When.Demand()))
		default:
			errs = append(errs, f.validate(here, source, v)...)
		}
	}
	return errs
}

// validate returns the errors of a value that is not null.
func (f Field) validate(at *field.Path, source resourceapi.AllocationConfigSource, value any) field.ErrorList {
	object, isObject := value.(map[string]any)
	switch {
	case f.Type == Object && isObject:
		return validateObject(at, source, f.Fields, object)
	case f.Type == Sizes && isObject && len(object) <= MostKeys:
		return f.validateSizes(at, object)
	case f.Type == Object, f.Type == Sizes:
		return field.ErrorList{field.Invalid(at, fmt.Sprintf("%T", value), f.Demand())}
	case f.permits(value):
		return nil
	}
	return field.ErrorList{field.Invalid(at, value, f.Demand())}
}

// validateSizes returns the errors of the keys and values of Sizes. Each names the key.
func (f Field) validateSizes(at *field.Path, value map[string]any) field.ErrorList {
	var errs field.ErrorList
	keys := regexp.MustCompile(f.Keys.Pattern)
	for _, key := range slices.Sorted(maps.Keys(value)) {
		switch quoted := strconv.Quote(key); {
		case !keys.MatchString(key):
			errs = append(errs, field.Invalid(at.Key(quoted[1:len(quoted)-1]), key, f.KeyDemand()))
		case !f.Value().permits(value[key]):
			errs = append(errs, field.Invalid(at.Key(key), value[key], f.EntryDemand()))
		}
	}
	return errs
}

// permits reports whether a field that is neither an Object nor Sizes may have the value.
func (f Field) permits(value any) bool {
	switch f.Type {
	case Choice:
		text, ok := value.(string)
		return ok && slices.Contains(f.Values, text)
	case Choices:
		return f.permitsAll(value)
	case Number:
		n, ok := value.(int64)
		return ok && n >= f.Least && n <= f.Most
	case Truth:
		_, ok := value.(bool)
		return ok
	case Size:
		n, ok := bytesOf(value)
		return ok && n >= f.Least && n <= f.Most
	case Object, Sizes:
	}
	return false
}

// permitsAll reports whether the value is a list of permitted texts, each at most once.
func (f Field) permitsAll(value any) bool {
	list, ok := value.([]any)
	if !ok {
		return false
	}
	seen := map[any]bool{}
	for _, v := range list {
		text, ok := v.(string)
		if !ok || seen[text] || !slices.Contains(f.Values, text) {
			return false
		}
		seen[text] = true
	}
	return true
}

// ParseMemory returns the bytes of a text that a Size permits, such as 512Mi.
func ParseMemory(text string) (uint64, error) {
	field := Field{Type: Size, Least: leastPinned, Most: mostPinned}
	if !field.permits(text) {
		return 0, fmt.Errorf("%.100q: %s", text, field.Demand())
	}
	bytes, _ := bytesOf(text)
	return uint64(bytes), nil
}

// bytesOf returns the number of bytes of a text or a whole number. Fractions of a byte are dropped. It is false if the value is
// not an amount of memory, or exceeds mostPinned as a text.
func bytesOf(value any) (int64, bool) {
	switch v := value.(type) {
	case int64:
		return v, true
	case string:
		if !sizeText.MatchString(v) {
			return 0, false
		}
		q, err := resource.ParseQuantity(v)
		if err != nil || q.CmpInt64(mostPinned) > 0 {
			return 0, false
		}
		n := q.Value()
		if q.CmpInt64(n) < 0 { // Value rounds up
			n--
		}
		return n, true
	}
	return 0, false
}
