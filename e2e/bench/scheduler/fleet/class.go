package fleet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// Classes are the shipped DeviceClasses.
func Classes() ([]*resourceapi.DeviceClass, error) {
	source, err := binaries.Source()
	if err != nil {
		return nil, err
	}
	var classes []*resourceapi.DeviceClass
	for _, name := range []string{"deviceclasses.yaml", "deviceclasses-profiles.yaml"} {
		text, err := os.ReadFile(filepath.Join(source, "deployments", name))
		if err != nil {
			return nil, err
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			class, ok := object.(*resourceapi.DeviceClass)
			if !ok {
				return nil, fmt.Errorf("read %s: found a %T", name, object)
			}
			classes = append(classes, class)
		}
	}
	return classes, nil
}
