package output

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Format is an output format.
type Format string

// The formats.
const (
	Text Format = "text"
	Wide Format = "wide"
	JSON Format = "json"
	YAML Format = "yaml"
)

// Flags are the output flags of a verb.
type Flags struct {
	Format  Format
	Color   string
	formats []Format
}

// Add defines the flags on the verb. formats are those that the verb supports; the first is the default.
func (f *Flags) Add(cmd *cobra.Command, formats ...Format) {
	f.formats = formats
	cmd.Flags().StringVarP((*string)(&f.Format), "output", "o", string(formats[0]), "output format: "+formatNames(formats))
	if slices.Contains(formats, Text) {
		cmd.Flags().StringVar(&f.Color, "color", "auto", "colors: auto, always or never; with auto, the environment variable NO_COLOR disables them")
	}
}

// Validate returns an error for a format that the verb does not support.
func (f *Flags) Validate() error {
	if !slices.Contains(f.formats, f.Format) {
		return fmt.Errorf("--output %q: must be one of %s", f.Format, formatNames(f.formats))
	}
	return nil
}

func formatNames(formats []Format) string {
	var names []string
	for _, f := range formats {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// WriteJSON writes the value as indented JSON.
func WriteJSON(out io.Writer, value any) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(out, escapeJSON(text.String()))
	return err
}

// Write writes the value as JSON or YAML. For any other format it writes nothing and written is false.
func (f *Flags) Write(out io.Writer, value any) (written bool, err error) {
	switch f.Format {
	case JSON:
		return true, WriteJSON(out, value)
	case YAML:
		text, err := yaml.Marshal(value)
		if err != nil {
			return true, err
		}
		_, err = out.Write(text)
		return true, err
	case Text, Wide:
	}
	return false, nil
}

// Table writes the header and the rows in aligned columns, like kubectl. An empty cell is written as a dash.
func (s *Screen) Table(header []string, rows [][]string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := slices.Clone(row)
		for i := range cells {
			cells[i] = cmp.Or(escape(cells[i], ""), "-")
		}
		// Writing to memory does not fail.
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush()
	for i, line := range strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n") {
		style := Plain
		if i == 0 {
			style = Bold
		}
		s.Line(Part{style, line})
	}
}
