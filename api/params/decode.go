package params

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/json"
)

// Decode reads the parameters of one opaque configuration for a driver of the name, sets the defaults
// and validates them. It is strict: unknown and repeated fields are errors. An error names the field and
// the values that it may have; what Kind.validate found is in it as an Aggregate of field errors.
func Decode(driver string, raw []byte) (Config, error) {
	if len(raw) == 0 { // what null becomes in a RawExtension
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
	err = errors.Join(utilerrors.NewAggregate(repeated), kind.validate(value).ToAggregate())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, config); err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}
	config.normalize()
	return config, nil
}

// find returns the kind that the parameters say they are of.
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

func (k Kind) accepts(driver string) bool { return k.Driver == "" || k.Driver == driver }

// Offered lists the kinds that are accepted with a driver name.
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

// text returns a value for a message.
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
	}
	return nil, fmt.Errorf("kind %s: has no type", kind.Name)
}
