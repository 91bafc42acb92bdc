package params

import "fmt"

// Row is one field in the reference of parameters.
type Row struct {
	// APIVersion and Kind are the type's, Name is the field's path in it.
	APIVersion, Kind, Name string
	// Type is what stands in JSON; Unit what a number counts.
	Type, Unit string
	// Default is what holds when the field is absent, Allowed what it may be, Effect what it does.
	Default, Allowed, Effect string
}

// Reference returns every field of every kind, in the order of Kinds.
func Reference() []Row {
	var rows []Row
	for _, kind := range Kinds() {
		rows = append(rows, reference(kind, "", kind.Fields)...)
	}
	return rows
}

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

// allowed says what the field may be, for a table.
func (f Field) allowed() string {
	allowed := f.Demand()
	if f.Required {
		allowed = "required; " + allowed
	}
	if f.When != nil {
		allowed = fmt.Sprintf("%s; %s", allowed, f.When.Demand())
	}
	return allowed
}
