package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Format is how a verb answers.
type Format string

// The formats.
const (
	Text Format = "text"
	Wide Format = "wide"
	JSON Format = "json"
	YAML Format = "yaml"
)

// Flags say how a verb answers.
type Flags struct {
	Format Format
	Color  string
	may    []Format
}

// Add defines the flags on the verb, which knows the formats. The first is the default.
func (f *Flags) Add(cmd *cobra.Command, may ...Format) {
	f.may = may
	cmd.Flags().StringVarP((*string)(&f.Format), "output", "o", string(may[0]), "format of the output: "+list(may))
	if slices.Contains(may, Text) {
		cmd.Flags().StringVar(&f.Color, "color", "auto", "colours: auto, always or never; NO_COLOR in the environment turns auto off")
	}
}

// Validate returns an error for a format that the verb does not know.
func (f *Flags) Validate() error {
	if !slices.Contains(f.may, f.Format) {
		return fmt.Errorf("--output %q: must be one of %s", f.Format, list(f.may))
	}
	return nil
}

func list(formats []Format) string {
	var names []string
	for _, f := range formats {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// WriteJSON writes the value indented.
func WriteJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// Write writes the value where the format is JSON or YAML; otherwise it writes nothing and says so.
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

// Table writes rows under a header, in columns as kubectl does. An empty cell is a dash.
func (s *Screen) Table(header []string, rows [][]string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := slices.Clone(row)
		for i := range cells {
			if cells[i] == "" {
				cells[i] = "-"
			}
		}
		// Writing into memory does not fail.
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
