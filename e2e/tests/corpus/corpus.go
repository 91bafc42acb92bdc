package corpus

import (
	_ "embed" // the cases
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/params"
)

//go:embed corpus.yaml
var text []byte

// Request is the name of the one request in every object.
const Request = "gpu"

// Case is one configuration and the verdict on it. One of Ours, NVIDIA and Raw holds the parameters.
type Case struct {
	Name string `json:"name"`
	// Ours are parameters of gpu.tessera.dev/v1alpha1, NVIDIA those of resource.nvidia.com/v1beta1, both
	// without their apiVersion. Raw is JSON.
	Ours   map[string]any `json:"ours,omitempty"`
	NVIDIA map[string]any `json:"nvidia,omitempty"`
	Raw    string         `json:"raw,omitempty"`
	// Driver is the driver of the configuration: gpu.nvidia.com for NVIDIA, gpu.tessera.dev by default.
	Driver string `json:"driver,omitempty"`
	// Class is the DeviceClass that is requested; by default an unknown one.
	Class string `json:"class,omitempty"`
	// Named is whether the configuration names the request.
	Named bool `json:"named,omitempty"`
	// Refused is a part of the error about wrong parameters; empty for right ones.
	Refused string `json:"refused,omitempty"`
	// RefusedInClaims is a part of the error about parameters that only a DeviceClass may have; empty for others.
	RefusedInClaims string `json:"refusedInClaims,omitempty"`
	// Unseen is why the policy cannot see what is wrong: then it lets the parameters pass.
	Unseen string `json:"unseen,omitempty"`
	// Server is the API server's own error where it rejects the parameters itself, with another text.
	Server string `json:"server,omitempty"`
}

// Load returns the cases.
func Load() ([]Case, error) {
	var cases []Case
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		return nil, fmt.Errorf("read the corpus: %w", err)
	}
	return cases, nil
}

// Large returns a case with all fields of NVIDIA's parameters and as many limits by device as are permitted.
func Large() Case {
	limits := map[string]any{}
	for position := range params.MostKeys {
		limits[strconv.Itoa(position)] = "123456789.123k"
	}
	return Case{Name: "large", NVIDIA: map[string]any{"kind": "GpuConfig", "sharing": map[string]any{"strategy": "MPS", "mpsConfig": map[string]any{
		"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "123456789.123k", "defaultPerDevicePinnedMemoryLimit": limits, "multiUser": true,
	}}}}
}

// Claim returns a claim with the configuration.
func (c Case) Claim() (*resourceapi.ResourceClaim, error) {
	spec, err := c.spec()
	return &resourceapi.ResourceClaim{TypeMeta: typeMeta("ResourceClaim"), ObjectMeta: metav1.ObjectMeta{Name: "corpus", Namespace: metav1.NamespaceDefault}, Spec: spec}, err
}

// Template returns a template of the claim.
func (c Case) Template() (*resourceapi.ResourceClaimTemplate, error) {
	spec, err := c.spec()
	return &resourceapi.ResourceClaimTemplate{
		TypeMeta: typeMeta("ResourceClaimTemplate"), ObjectMeta: metav1.ObjectMeta{Name: "corpus", Namespace: metav1.NamespaceDefault},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}, err
}

// DeviceClass returns a class with the configuration.
func (c Case) DeviceClass() (*resourceapi.DeviceClass, error) {
	configuration, err := c.configuration()
	return &resourceapi.DeviceClass{
		TypeMeta: typeMeta("DeviceClass"), ObjectMeta: metav1.ObjectMeta{Name: "corpus.example.com"},
		Spec: resourceapi.DeviceClassSpec{Config: []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: configuration}}},
	}, err
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: kind}
}

func (c Case) spec() (resourceapi.ResourceClaimSpec, error) {
	configuration, err := c.configuration()
	config := resourceapi.DeviceClaimConfiguration{DeviceConfiguration: configuration}
	if c.Named {
		config.Requests = []string{Request}
	}
	class := c.Class
	if class == "" {
		class = "anything.example.com"
	}
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{{Name: Request, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}},
		Config:   []resourceapi.DeviceClaimConfiguration{config},
	}}, err
}

// configuration returns the opaque configuration of the case.
func (c Case) configuration() (resourceapi.DeviceConfiguration, error) {
	driver, raw, err := "gpu.tessera.dev", []byte(c.Raw), error(nil)
	switch {
	case c.Ours != nil:
		raw, err = versioned("gpu.tessera.dev/v1alpha1", c.Ours)
	case c.NVIDIA != nil:
		driver = "gpu.nvidia.com"
		raw, err = versioned("resource.nvidia.com/v1beta1", c.NVIDIA)
	}
	if c.Driver != "" {
		driver = c.Driver
	}
	return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: raw}}}, err
}

func versioned(version string, fields map[string]any) ([]byte, error) {
	whole := maps.Clone(fields)
	whole["apiVersion"] = version
	return json.Marshal(whole)
}

// Refusal returns a part of the error about the parameters in a DeviceClass, or in a claim and its template; empty if they are right there.
func (c Case) Refusal(inClass bool) string {
	if inClass || c.RefusedInClaims == "" {
		return c.Refused
	}
	return c.RefusedInClaims
}
