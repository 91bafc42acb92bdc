package output

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
)

// Format is an output format, for some formats with a template, such as jsonpath={.items}.
type Format string

// The formats without a template.
const (
	Text Format = "text"
	Wide Format = "wide"
	Name Format = "name"
	JSON Format = "json"
	YAML Format = "yaml"
)

// customColumns begins the format of a table with columns of the caller.
const customColumns = "custom-columns="

// Flags are the output flags of a verb.
type Flags struct {
	Format Format
	Color  string
	// NoHeaders leaves out the headers of tables.
	NoHeaders bool
	// Watch prints changes after the list. WatchEvents adds their type.
	Watch, WatchEvents bool
	formats            []Format
}

// Add defines the flags on the verb. extra are the formats that the verb supports in addition to those of every verb: Wide and Name.
func (f *Flags) Add(cmd *cobra.Command, extra ...Format) {
	f.formats = slices.Concat([]Format{Text}, extra, []Format{JSON, YAML})
	cmd.Flags().StringVarP((*string)(&f.Format), "output", "o", string(Text), "output format: "+f.formatNames())
	cmd.Flags().StringVar(&f.Color, "color", "auto", "colors: auto, always or never; with auto, the environment variable NO_COLOR disables them")
	cmd.Flags().BoolVar(&f.NoHeaders, "no-headers", false, "do not print headers (default print headers)")
	var names []string
	for _, format := range f.formats {
		names = append(names, string(format))
	}
	names = append(names, "jsonpath=", "jsonpath-as-json=", "jsonpath-file=", customColumns)
	// Registering fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	_ = cmd.RegisterFlagCompletionFunc("color", cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp))
}

// Validate returns an error for an unknown format or an invalid template.
func (f *Flags) Validate() error {
	if _, err := NewScreen(io.Discard, f.Color); err != nil {
		return err
	}
	if _, err := f.printer(); err != nil {
		return err
	}
	return f.validateWatch()
}

// IsText reports whether the format is for people.
func (f *Flags) IsText() bool { return f.Format == Text || f.Format == Wide }

// Print writes the result in the selected format.
func (f *Flags) Print(out io.Writer, r Result) error {
	screen, err := f.screen(out)
	if err != nil {
		return err
	}
	p, err := f.printer()
	if err != nil {
		return err
	}
	switch {
	case f.IsText():
		r.draw(screen)
		return screen.Err()
	case f.isRows():
		return f.printRows(screen, r.items())
	}
	return printEncoded(out, p, f.Format, r.Value)
}

// screen returns a screen with the style of the flags.
func (f *Flags) screen(out io.Writer) (*Screen, error) {
	screen, err := NewScreen(out, cmp.Or(f.Color, "never"))
	if err != nil {
		return nil, err
	}
	screen.Wide, screen.NoHeaders = f.Format == Wide, f.NoHeaders
	return screen, nil
}

// isRows reports whether the format has a line per item.
func (f *Flags) isRows() bool {
	return f.Format == Name || strings.HasPrefix(string(f.Format), customColumns)
}

// printRows writes a line per item.
func (f *Flags) printRows(s *Screen, rows []Row) error {
	if f.Format != Name {
		return f.printColumns(s, rows)
	}
	for _, row := range rows {
		if row.Name != "" {
			s.Text(row.Name)
		}
	}
	return s.Err()
}

// printer returns the printer for an encoded value; nil for a format for people, name, and custom-columns.
func (f *Flags) printer() (printers.ResourcePrinter, error) {
	format := string(f.Format)
	switch {
	case f.IsText(), f.Format == Name && (f.formats == nil || slices.Contains(f.formats, Name)):
		if f.formats != nil && !slices.Contains(f.formats, f.Format) {
			return nil, f.unknownFormat()
		}
		return nil, nil
	case strings.HasPrefix(format, customColumns):
		_, err := parseColumns(strings.TrimPrefix(format, customColumns))
		return nil, err
	case f.Format == JSON || f.Format == YAML:
		return (&genericclioptions.JSONYamlPrintFlags{ShowManagedFields: true}).ToPrinter(format)
	}
	p, err := (&genericclioptions.JSONPathPrintFlags{}).ToPrinter(format)
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, f.unknownFormat()
	}
	if err != nil {
		return nil, fmt.Errorf("--output %q: %w", format, err)
	}
	return p, nil
}

func (f *Flags) unknownFormat() error {
	return fmt.Errorf("--output %q: must be one of %s", f.Format, f.formatNames())
}

// formatNames returns the names of the supported formats, separated by commas.
func (f *Flags) formatNames() string {
	var names []string
	for _, format := range f.formats {
		names = append(names, string(format))
	}
	return strings.Join(append(names, "jsonpath=..., jsonpath-as-json=..., jsonpath-file=..., custom-columns=..."), ", ")
}

// printEncoded writes the value with a printer. What a terminal could interpret is escaped.
func printEncoded(out io.Writer, p printers.ResourcePrinter, format Format, value any) error {
	raw, err := encode(value)
	if err != nil {
		return err
	}
	var object runtime.Object
	switch format { //nolint:exhaustive // the others are templates
	case JSON:
		object = &runtime.Unknown{Raw: raw}
	case YAML:
		object = &runtime.Unknown{Raw: markYAML(raw)}
	default:
		// Templates print integers only from an object with integers.
		fields := map[string]any{}
		if err := utiljson.Unmarshal(raw, &fields); err != nil {
			return err
		}
		object = &unstructured.Unstructured{Object: fields}
	}
	var text bytes.Buffer
	if err := p.PrintObj(object, &text); err != nil {
		// The error of a template repeats the whole object after its first line.
		first, _, _ := strings.Cut(err.Error(), ". Printing more information")
		return errors.New(escape(first, ""))
	}
	var escaped string
	switch format { //nolint:exhaustive // the others are templates
	case JSON:
		escaped = escapeJSON(text.String())
	case YAML:
		escaped = escapeYAML(text.String())
	default:
		escaped = escape(text.String(), "\n\t")
	}
	_, err = io.WriteString(out, escaped)
	return err
}

// encode returns the value as JSON.
func encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSpace(text.Bytes()), err
}
