package params

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/json"
)

// Decode reads the parameters of one opaque configuration, sets the defaults and validates them. It is
// strict: unknown and repeated fields are errors. An error names the field and the values that it may
// have.
func Decode(raw []byte) (Config, error) {
	var meta metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &meta); err != nil {
		return nil, err
	}
	config, err := blank(meta)
	if err != nil {
		return nil, err
	}
	strict, err := json.UnmarshalStrict(raw, config)
	if err := errors.Join(err, utilerrors.NewAggregate(strict)); err != nil {
		return nil, fmt.Errorf("%s: %w", config.kind(), err)
	}
	config.normalize()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", config.kind(), err)
	}
	return config, nil
}

// blank returns an empty configuration of the type.
func blank(meta metav1.TypeMeta) (Config, error) {
	if meta.APIVersion == APIVersion {
		switch meta.Kind {
		case GPUConfigKind:
			return &GPUConfig{}, nil
		case MIGConfigKind:
			return &MIGConfig{}, nil
		}
	}
	return nil, fmt.Errorf("apiVersion %q, kind %q: must be %s and one of %s, %s", meta.APIVersion, meta.Kind, APIVersion, GPUConfigKind, MIGConfigKind)
}
