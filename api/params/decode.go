package params

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/json"
)

// Decode returns the parameters of one opaque configuration for the named driver, with defaults and validated. raw is JSON. Only a
// DeviceClass as the source may have fields that require an administrator's consent (Field.FromClass).
//
// Decoding is strict: unknown and repeated fields are errors. An error names the field and its permitted values. Errors of the
// schema are wrapped as a utilerrors.Aggregate of *field.Error.
func Decode(driver string, source resourceapi.AllocationConfigSource, raw []byte) (Config, error) {
	if len(raw) == 0 { // a RawExtension decodes null to no bytes
		raw = []byte("null")
	}
	var value map[string]any
	repeated, err := json.UnmarshalStrict(raw, &value)
	if err != nil {
		return nil, err
	}
	kind, err := find(driver, value)
	if err != nil {
		return nil, err
	}
	config, err := blank(kind)
	if err != nil {
		return nil, err
	}
	err = errors.Join(utilerrors.NewAggregate(repeated), kind.validate(source, value).ToAggregate())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, config); err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}
	config.normalize()
	return config, nil
}

// find returns the kind that apiVersion and kind of the parameters name. An error lists the kinds that the driver accepts.
func find(driver string, value map[string]any) (Kind, error) {
	kinds := Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return value["apiVersion"] == k.APIVersion && value["kind"] == k.Name })
	switch {
	case i >= 0 && kinds[i].accepts(driver):
		return kinds[i], nil
	case i >= 0:
		return Kind{}, fmt.Errorf("%s of %s: is only for the driver name %s: with %s use %s", kinds[i].Name, kinds[i].APIVersion, kinds[i].Driver, driver, Offered(driver))
	}
	return Kind{}, fmt.Errorf("apiVersion %s, kind %s: must be one of %s", text(value["apiVersion"]), text(value["kind"]), Offered(driver))
}

// accepts reports whether the kind is accepted with the driver name.
func (k Kind) accepts(driver string) bool { return k.Driver == "" || k.Driver == driver }

// Offered lists the kinds that are accepted with a driver name, for messages.
func Offered(driver string) string {
	var versions []string
	names := map[string][]string{}
	for _, k := range Kinds() {
		if !k.accepts(driver) {
			continue
		}
		if names[k.APIVersion] == nil {
			versions = append(versions, k.APIVersion)
		}
		names[k.APIVersion] = append(names[k.APIVersion], k.Name)
	}
	for i, version := range versions {
		versions[i] = strings.Join(names[version], ", ") + " of " + version
	}
	return strings.Join(versions, "; ")
}

// text returns a value of apiVersion or kind for messages, at most 100 characters of it.
func text(value any) string {
	if value == nil {
		value = ""
	}
	if s, ok := value.(string); ok {
		return fmt.Sprintf("%.100q", s)
	}
	return fmt.Sprintf("of type %T", value)
}

// blank returns an empty configuration of the kind.
func blank(kind Kind) (Config, error) {
	switch kind.Name {
	case GPUConfigKind:
		return &GPUConfig{}, nil
	case MIGConfigKind:
		return &MIGConfig{}, nil
	case NVIDIAGPUConfigKind:
		return &NVIDIAGPUConfig{}, nil
	case NVIDIAMIGConfigKind:
		return &NVIDIAMIGConfig{}, nil
	case NVIDIAVFIOConfigKind:
		return &NVIDIAVFIOConfig{}, nil
	}
	return nil, fmt.Errorf("kind %s: has no type", kind.Name)
}
