package params

import "fmt"

// Row is one field in the reference of parameters in the documentation.
type Row struct {
	// APIVersion and Kind are those of the type. Name is the path of the field in it, such as mps.pinnedMemoryLimit.
	APIVersion, Kind, Name string
	// Type is the JSON type. Unit is what a number counts.
	Type, Unit string
	// Default is the value of an absent field. Allowed describes the permitted values, Effect what the field does.
	Default, Allowed, Effect string
}

// Reference returns all fields of all kinds, in the order of Kinds. A field precedes the fields in it.
func Reference() []Row {
	var rows []Row
	for _, kind := range Kinds() {
		rows = append(rows, reference(kind, "", kind.Fields)...)
	}
	return rows
}

// reference returns the rows of the fields; prefix is the path of their object, with a final period.
func reference(kind Kind, prefix string, fields []Field) []Row {
	var rows []Row
	for _, f := range fields {
		rows = append(rows, Row{
			APIVersion: kind.APIVersion, Kind: kind.Name, Name: prefix + f.Name, Type: f.Type.String(), Unit: f.Unit,
			Default: f.Default, Allowed: f.allowed(), Effect: f.Effect,
		})
		rows = append(rows, reference(kind, prefix+f.Name+".", f.Fields)...)
	}
	return rows
}

// allowed describes the permitted values and conditions of the field.
func (f Field) allowed() string {
	allowed := f.Demand()
	if f.Required {
		allowed = "required; " + allowed
	}
	if f.When != nil {
		allowed = fmt.Sprintf("%s; %s", allowed, f.When.Demand())
	}
	if f.FromClass {
		allowed += "; only in a DeviceClass"
	}
	return allowed
}
