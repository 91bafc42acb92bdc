package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/kubelet-plugin/server"
)

// published is an attribute or capacity as published by the machines of the catalogue.
type published struct {
	kind    string
	example string
	// compact and full are the shapes whose devices have it in each attribute set.
	compact, full map[string]bool
	policy        string
}

// catalogue are attributes or capacities by name.
type catalogue map[string]*published

// note records that devices of the shape have the attribute or capacity.
func (c catalogue) note(name, kind, example, shape string, full bool) *published {
	p := c[name]
	if p == nil {
		p = &published{kind: kind, example: example, compact: map[string]bool{}, full: map[string]bool{}}
		c[name] = p
	}
	if full {
		p.full[shape] = true
	} else {
		p.compact[shape] = true
	}
	return p
}

// renderReference returns docs/reference.md. The meanings of attributes and capacities are those of meanings.go; types, examples and shapes
// are those of the encoded machines.
func renderReference(source string) (string, error) {
	attributes, capacities, err := observe()
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString(referenceHead)
	page.WriteString("\n## Attributes\n\n" + attributesHead)
	if err := attributes.writeList(&page, attributeMeanings); err != nil {
		return "", err
	}
	page.WriteString("\n## Capacities\n\n" + capacitiesHead)
	if err := capacities.writeList(&page, capacityMeanings); err != nil {
		return "", err
	}
	page.WriteString("\n" + selectors)
	page.WriteString("\n## Parameters\n\n" + parametersHead)
	writeParameters(&page)
	page.WriteString("\n## NodeConfig\n\n" + nodeConfigHead)
	if err := writeNodeConfig(&page, filepath.Join(source, "api", "v1alpha1")); err != nil {
		return "", err
	}
	page.WriteString("\n## Events\n\n" + eventsHead)
	for _, r := range server.Refusals() {
		fmt.Fprintf(&page, "| `%s` | %s |\n", r.Reason, sentence(r.Advice))
	}
	page.WriteString(otherEvents)
	return page.String(), nil
}

// observe encodes every machine of the catalogue in both attribute sets.
func observe() (attributes, capacities catalogue, err error) {
	machines, err := catalog.Machines()
	if err != nil {
		return nil, nil, err
	}
	// The examples are those of h100x8.
	slices.SortStableFunc(machines, func(a, b catalog.Machine) int {
		return -cmp.Compare(btoi(a.Name == "h100x8"), btoi(b.Name == "h100x8"))
	})
	attributes, capacities = catalogue{}, catalogue{}
	offer := gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, Shares: 10}
	for _, m := range machines {
		node, err := m.Node(m.Name)
		if err != nil {
			return nil, nil, err
		}
		for _, full := range []bool{false, true} {
			err := errors.Join(
				note(attributes, capacities, node, wire.Options{Driver: v1alpha1.DriverName, Offer: offer, Full: full}),
				note(attributes, capacities, sandbox(node), wire.Options{Driver: v1alpha1.DriverName, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.VFIO}}, Full: full}),
			)
			if err != nil {
				return nil, nil, err
			}
		}
	}
	return attributes, capacities, nil
}

// sandbox returns the node with GPUs for virtual machines, as the agent reads it from PCI.
func sandbox(node gpu.Node) gpu.Node {
	bare := gpu.Node{Name: node.Name}
	for _, g := range node.GPUs {
		bare.GPUs = append(bare.GPUs, gpu.GPU{
			PCI: g.PCI, Index: g.Index, Product: g.Product, Architecture: g.Architecture, MemoryBytes: g.MemoryBytes, NUMA: g.NUMA, PCIeRoot: g.PCIeRoot,
			IOMMUGroup: strconv.Itoa(31 + g.Index),
		})
	}
	return bare
}

// note records all devices of a node.
func note(attributes, capacities catalogue, node gpu.Node, options wire.Options) error {
	pool, err := wire.Encode(node, options)
	if err != nil {
		return err
	}
	for _, s := range pool.Slices {
		for _, d := range s.Devices {
			noteDevice(attributes, capacities, d, options.Full)
		}
	}
	return nil
}

func noteDevice(attributes, capacities catalogue, d resourceapi.Device, full bool) {
	shape := *d.Attributes[wire.Type].StringValue
	for name, value := range d.Attributes {
		kind, example := attributeText(value)
		attributes.note(string(name), kind, example, shape, full)
	}
	for name, capacity := range d.Capacity {
		p := capacities.note(string(name), "quantity", capacity.Value.String(), shape, full)
		if policy := capacity.RequestPolicy; policy != nil && p.policy == "" {
			p.policy = "default " + policy.Default.String()
			if policy.ValidRange != nil && policy.ValidRange.Step != nil {
				p.policy += fmt.Sprintf(", from %s in steps of %s", policy.ValidRange.Min, policy.ValidRange.Step)
			}
		}
	}
}

func attributeText(value resourceapi.DeviceAttribute) (kind, text string) {
	switch {
	case value.StringValue != nil:
		return "string", *value.StringValue
	case value.IntValue != nil:
		return "int", fmt.Sprint(*value.IntValue)
	case value.VersionValue != nil:
		return "version", *value.VersionValue
	case value.BoolValue != nil:
		return "bool", fmt.Sprint(*value.BoolValue)
	}
	return "", ""
}

// writeList writes an entry per name. A name without a meaning, or a meaning without a name, is an error.
func (c catalogue) writeList(page *strings.Builder, meanings map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(meanings)) {
		if c[name] == nil {
			return fmt.Errorf("describe %s: no machine publishes it", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		p, meaning := c[name], meanings[name]
		if meaning == "" {
			return fmt.Errorf("describe %s: no meaning in e2e/repo/generate/meanings.go", name)
		}
		if p.policy != "" {
			meaning += "; shared devices: " + p.policy
		}
		writeEntry(page, fmt.Sprintf("`%s` (%s, such as `%s`; %s)", name, p.kind, p.example, shapes(p.compact, p.full)), sentence(meaning))
	}
	return nil
}

// shapes lists the shapes whose devices have it; + marks those that have it only in the attribute set Full.
func shapes(compact, full map[string]bool) string {
	var list []string
	for s := gpu.Whole; s <= gpu.Monitor; s++ {
		switch name := s.String(); {
		case compact[name]:
			list = append(list, name)
		case full[name]:
			list = append(list, "+"+name)
		}
	}
	return strings.Join(list, " ")
}

// writeParameters writes a section per kind of parameters with an entry per field.
func writeParameters(page *strings.Builder) {
	kind := ""
	for _, row := range params.Reference() {
		if row.Kind != kind {
			kind = row.Kind
			fmt.Fprintf(page, "\n### %s\n\n`apiVersion: %s`, `kind: %s`\n\n", kind, row.APIVersion, kind)
		}
		typed := row.Type
		if row.Unit != "" {
			typed += ", " + row.Unit
		}
		if row.Default != "" {
			typed += "; default " + row.Default
		}
		writeEntry(page, fmt.Sprintf("`%s` (%s)", row.Name, typed), sentence(row.Effect)+" "+sentence(row.Allowed))
	}
}

// writeNodeConfig writes the fields of NodeConfig with their comments in the sources of the folder.
func writeNodeConfig(page *strings.Builder, folder string) error {
	for _, part := range []struct{ source, structure, prefix string }{
		{"nodeconfig.go", "NodeConfigSpec", ""},
		{"health.go", "HealthSpec", "health."},
		{"health.go", "XIDRule", "health.xids[]."},
		{"nodeconfig.go", "Roots", "roots."},
	} {
		fields, err := fieldsOf(filepath.Join(folder, part.source), part.structure)
		if err != nil {
			return err
		}
		described := ""
		for _, field := range fields {
			name := strings.Split(strings.Trim(field.Tag.Value, "`"), `"`)[1]
			name, _, _ = strings.Cut(name, ",")
			if comment := prose(field.Doc.Text()); comment != "" {
				described = comment
			}
			writeEntry(page, fmt.Sprintf("`%s%s`", part.prefix, name), described)
		}
	}
	return nil
}

// fieldsOf returns the fields of a struct of the source.
func fieldsOf(source, structure string) ([]*ast.Field, error) {
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	object := file.Scope.Lookup(structure)
	if object == nil {
		return nil, fmt.Errorf("read %s: no %s in it", source, structure)
	}
	declared, ok := object.Decl.(*ast.TypeSpec)
	if !ok {
		return nil, fmt.Errorf("read %s: %s is not a type", source, structure)
	}
	fields, ok := declared.Type.(*ast.StructType)
	if !ok {
		return nil, fmt.Errorf("read %s: %s is not a struct", source, structure)
	}
	return fields.Fields.List, nil
}

// prose returns a comment as one line, without generator markers.
func prose(comment string) string {
	var words []string
	for line := range strings.Lines(comment) {
		if !strings.HasPrefix(line, "+") {
			words = append(words, strings.Fields(line)...)
		}
	}
	return strings.Join(words, " ")
}

// sentence returns the text with a capital letter and a full stop.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// lineWidth is the maximum width of a line in Markdown, in characters.
const lineWidth = 160

// writeEntry writes one entry of a list: the term, then its text, with lines of at most lineWidth characters.
func writeEntry(page *strings.Builder, term, text string) {
	line := "-"
	for word := range strings.FieldsSeq(term + ": " + text) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > lineWidth {
			page.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	page.WriteString(line + "\n")
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
