package params

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Kind is the schema of one kind of parameters. Decode, the admission policy and the reference in the documentation use it.
type Kind struct {
	APIVersion, Name string
	// Driver is the only driver name with which the kind is accepted; empty accepts all.
	Driver string
	// For describes the devices that the kind is for.
	For string
	// Fields are all fields except apiVersion and kind.
	Fields []Field
}

// Field is one field of a Kind or of an object in it. A field with the value null counts as absent.
type Field struct {
	Name string
	Type Type
	// Values are the permitted texts of a Choice or of the elements of a Choices.
	Values []string
	// Least and Most are the inclusive bounds of a Number, and of a Size or the values of Sizes in bytes.
	Least, Most int64
	// Keys are the permitted keys of Sizes.
	Keys Keys
	// Fields are those of an Object.
	Fields []Field
	// Required fields must be present in their object.
	Required bool
	// FromClass fields are permitted in the parameters of a DeviceClass and not in those of a claim: they require an administrator's consent.
	FromClass bool
	// When is the condition under which the field is permitted; nil permits it always.
	When *Condition
	// Unit is what a Number counts, Default the value of an absent field, Effect what the field does.
	Unit, Default, Effect string
}

// Condition is that another field of the same object has a value.
type Condition struct{ Field, Value string }

// Type is the type of a field's value.
type Type int

// The types.
const (
	// Object has fields.
	Object Type = iota
	// Choice is one of several texts.
	Choice
	// Choices is a list of several texts, each at most once.
	Choices
	// Number is a whole number.
	Number
	// Truth is true or false.
	Truth
	// Size is an amount of memory: a text such as 512Mi, or a whole number of bytes.
	Size
	// Sizes is an object with at most MostKeys keys of the field's Keys, each with a Size.
	Sizes
)

// String returns the name of the JSON type.
func (t Type) String() string {
	switch t {
	case Object, Sizes:
		return "object"
	case Choice, Size:
		return "string"
	case Choices:
		return "array"
	case Number:
		return "integer"
	case Truth:
		return "boolean"
	}
	return fmt.Sprintf("type-%d", int(t))
}

// Keys are the permitted keys of Sizes: the regular expression that a key must match, and a description for messages.
type Keys struct{ Pattern, Demand string }

// MostKeys is the maximum number of keys of Sizes. A claim has at most 32 devices.
const MostKeys = 64

// The keys of limits by device. A position is written without sign and leading zeros, so that each has one form.
const (
	positionPattern = `0|[1-9][0-9]{0,2}`
	uuidPattern     = `GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`
)

// gpuKeys returns the keys of limits by whole GPU, and migKeys those by MIG device.
func gpuKeys() Keys {
	return Keys{"^(" + positionPattern + "|" + uuidPattern + ")$", "the position of a GPU among those that the entry applies to, in the order of their UUIDs, such as 0, or the UUID of a GPU"}
}

func migKeys() Keys {
	return Keys{"^(" + positionPattern + ")$", "the position of a device among those that the entry applies to, in the order of the allocation, such as 0; a MIG device has no UUID before it is prepared"}
}

// The bounds of an amount of memory in bytes. MPS counts in megabytes, and no GPU has a pebibyte.
const (
	leastPinned = 1 << 20
	mostPinned  = 1 << 50
)

// SizePattern is the regular expression of the text of a Size. A text must match it before it is parsed as a quantity, because
// parsing a quantity with a large negative exponent takes a minute of CPU time.
const SizePattern = `^[0-9]{1,15}([.][0-9]{1,3})?(k|M|G|T|Ki|Mi|Gi|Ti)?$`

// Demand describes the permitted values of the field. It is the end of each message about it.
func (f Field) Demand() string {
	switch f.Type {
	case Object:
		return "must be an object"
	case Choice:
		return "must be one of " + strings.Join(f.Values, ", ")
	case Choices:
		return "must be a list of some of " + strings.Join(f.Values, ", ") + ", each at most once"
	case Number:
		return fmt.Sprintf("must be a whole number from %d to %d", f.Least, f.Most)
	case Truth:
		return "must be true or false"
	case Size:
		return fmt.Sprintf("must be an amount of memory from %s to %s, such as 512Mi or 4Gi", amount(f.Least), amount(f.Most))
	case Sizes:
		return fmt.Sprintf("must be an object with at most %d keys: each key must be %s; each value %s", MostKeys, f.Keys.Demand, f.EntryDemand())
	}
	return "must be " + f.Type.String()
}

// KeyDemand describes the permitted keys of Sizes. It is the end of the message about a key.
func (f Field) KeyDemand() string { return "the key must be " + f.Keys.Demand }

// EntryDemand describes the permitted values of Sizes. It is the end of the message about the value of a key.
func (f Field) EntryDemand() string { return f.Value().Demand() }

// Value returns the field of one value of Sizes.
func (f Field) Value() Field {
	f.Type = Size
	return f
}

// Known lists the fields of an object. It is the end of the message about an unknown field.
func Known(fields []Field) string {
	if len(fields) == 0 {
		return "the object has no fields"
	}
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return "the fields are " + strings.Join(names, ", ")
}

// FromClassDemand describes the condition of a FromClass field, for messages.
const FromClassDemand = "is only for DeviceClasses, because it requires an administrator's consent: remove it from the claim, and request a DeviceClass that has it"

// Demand describes the condition, for messages.
func (c Condition) Demand() string { return fmt.Sprintf("is only for %s %s", c.Field, c.Value) }

// amount returns a number of bytes as text, such as 1Mi.
func amount(bytes int64) string {
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}

// Kinds returns the schemas of all kinds that an opaque configuration can have. The caller may modify the result.
func Kinds() []Kind {
	interval := Field{
		Name: "interval", Type: Choice, Values: []string{string(Default), string(Short), string(Medium), string(Long)}, Default: string(Default),
		Effect: "how long one context runs on the GPU before the next one",
	}
	timeSlicing := Field{
		Name: "timeSlicing", Type: Object, Fields: []Field{interval},
		Effect: "sets the GPU's time slice; on a shared GPU that of the first claim applies, and the release of the last claim restores the default",
	}
	return []Kind{
		{APIVersion: APIVersion, Name: GPUConfigKind, For: "whole and shared GPUs", Fields: []Field{timeSlicing, ownMPS(), memoryLimit(), extras()}},
		{APIVersion: APIVersion, Name: MIGConfigKind, For: "MIG devices", Fields: []Field{ownMPS(), extras()}},
		{
			APIVersion: NVIDIAAPIVersion, Name: NVIDIAGPUConfigKind, Driver: v1alpha1.NVIDIADriverName, For: "whole and shared GPUs",
			Fields: []Field{sharing(
				Field{
					Name: "timeSlicingConfig", Type: Object, Fields: []Field{interval}, When: &Condition{"strategy", TimeSlicingStrategy},
					Effect: "sets the GPU's time slice",
				},
				nvidiaMPS(gpuKeys()),
			)},
		},
		{
			APIVersion: NVIDIAAPIVersion, Name: NVIDIAMIGConfigKind, Driver: v1alpha1.NVIDIADriverName, For: "MIG devices",
			Fields: []Field{sharing(nvidiaMPS(migKeys()))},
		},
		{
			APIVersion: NVIDIAAPIVersion, Name: NVIDIAVFIOConfigKind, Driver: v1alpha1.NVIDIADriverName, For: "GPUs for virtual machines",
			Fields: []Field{{Name: "iommu", Type: Object, Effect: "how the GPU is passed", Fields: []Field{
				{
					Name: "backendPolicy", Type: Choice, Values: []string{"LegacyOnly", "PreferIommuFD"}, Default: "LegacyOnly",
					Effect: "none: GPUs are passed by their IOMMU group, to which PreferIommuFD falls back",
				},
				{Name: "enableAPIDevice", Type: Truth, Default: "true", Effect: "none: containers always get /dev/vfio/vfio"},
			}}},
		},
	}
}

// extras returns the field devices of Tessera's kinds.
func extras() Field {
	return Field{
		Name: "devices", Type: Choices, Values: ExtraNames(), Default: "none", FromClass: true,
		Effect: "adds device nodes of the node to the containers: gds /dev/nvidia-fs* with /run/udev and /etc/cufile.json, gdrcopy /dev/gdrdrv, " +
			"rdma /dev/infiniband/uverbs* and rdma_cm; preparation fails on a node that has none",
	}
}

// memoryLimit returns the field memoryLimit of GPUConfig.
func memoryLimit() Field {
	return Field{
		Name: "memoryLimit", Type: Size, Least: leastPinned, Most: mostPinned, Unit: "bytes", Default: "the memory that the claim requests",
		Effect: "the most to which tessera shares resize can raise the memory limit of a share's containers: at least what the claim requests and at most the " +
			"GPU's memory; the part above the request is not reserved. Preparation fails where memory is not limited (attribute memoryEnforced)",
	}
}

// ownMPS returns the field mps of Tessera's kinds.
func ownMPS() Field {
	return Field{
		Name: "mps", Type: Object, Effect: "runs an MPS daemon for the containers of this claim only",
		Fields: []Field{
			{
				Name: "activeThreadPercentage", Type: Number, Least: 1, Most: 100, Unit: "percent", Default: "no limit",
				Effect: "the part of the multiprocessors that each client may use",
			},
			{
				Name: "pinnedMemoryLimit", Type: Size, Least: leastPinned, Most: mostPinned, Unit: "bytes", Default: "no limit",
				Effect: "the device memory that each client may allocate on each device",
			},
		},
	}
}

// sharing returns the field sharing of NVIDIA's kinds, with the given fields in addition to strategy.
func sharing(configs ...Field) Field {
	strategy := Field{
		Name: "strategy", Type: Choice, Values: []string{TimeSlicingStrategy, MPSStrategy}, Required: true,
		Effect: "whether containers share the device by time slices or under an MPS daemon; TimeSlicing has no effect on a MIG device",
	}
	return Field{
		Name: "sharing", Type: Object, Default: "nothing is set", Effect: "how containers share the device",
		Fields: append([]Field{strategy}, configs...),
	}
}

// nvidiaMPS returns the field mpsConfig of NVIDIA's kinds; keys are those of limits by device.
func nvidiaMPS(keys Keys) Field {
	return Field{
		Name: "mpsConfig", Type: Object, When: &Condition{"strategy", MPSStrategy}, Effect: "limits the clients of the claim's MPS daemon",
		Fields: []Field{
			{
				Name: "defaultActiveThreadPercentage", Type: Number, Least: 0, Most: 100, Unit: "percent", Default: "no limit, as 0",
				Effect: "the part of the multiprocessors that each client may use",
			},
			{
				Name: "defaultPinnedDeviceMemoryLimit", Type: Size, Least: leastPinned, Most: mostPinned, Unit: "bytes", Default: "no limit",
				Effect: "the device memory that each client may allocate on each device",
			},
			{
				Name: perDeviceField, Type: Sizes, Keys: keys, Least: leastPinned, Most: mostPinned, Unit: "bytes", Default: "none",
				Effect: "the device memory that each client may allocate on single devices, instead of defaultPinnedDeviceMemoryLimit",
			},
			{Name: "multiUser", Type: Truth, Default: "true", Effect: "none: clients of several users always run under a daemon at the same time"},
		},
	}
}
