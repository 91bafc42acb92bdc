package output

import (
	"bytes"
	"cmp"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// Column is a column of a table.
type Column struct {
	Header string
	// Wide limits the column to the format wide.
	Wide bool
}

// Columns returns columns with the headers.
func Columns(headers ...string) []Column {
	var columns []Column
	for _, header := range headers {
		columns = append(columns, Column{Header: header})
	}
	return columns
}

// Table writes the header and the rows in aligned columns, with the printer of kubectl. An empty cell is written as a dash.
func (s *Screen) Table(columns []Column, rows [][]string) {
	table := &metav1.Table{}
	for _, c := range columns {
		definition := metav1.TableColumnDefinition{Name: c.Header}
		if c.Wide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}
	for _, row := range rows {
		var cells []any
		for _, cell := range row {
			cells = append(cells, cmp.Or(escape(cell, ""), "-"))
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	noHeaders := s.NoHeaders || s.Continued
	text, err := s.tables.format(table, printers.PrintOptions{Wide: s.Wide, NoHeaders: noHeaders})
	if err != nil {
		s.fail(err)
		return
	}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		style := Plain
		if i == 0 && !noHeaders {
			style = Bold
		}
		s.Line(Part{style, line})
	}
}

// tableFormat formats the tables of a screen.
type tableFormat struct {
	// text receives what aligned formats. Both are nil while tables have no columns in common.
	text    *bytes.Buffer
	aligned interface {
		io.Writer
		Flush() error
	}
}

// newTableFormat returns a format whose tables have the same columns: a column is at least as wide as in the tables before, as with kubectl get --watch.
func newTableFormat() tableFormat {
	text := &bytes.Buffer{}
	return tableFormat{text, printers.GetNewTabWriter(text)}
}

// format returns the text of the table.
func (f tableFormat) format(table *metav1.Table, options printers.PrintOptions) (string, error) {
	printer := printers.NewTablePrinter(options)
	if f.text == nil {
		var text strings.Builder
		err := printer.PrintObj(table, &text)
		return text.String(), err
	}
	defer f.text.Reset()
	if err := printer.PrintObj(table, f.aligned); err != nil {
		return "", err
	}
	err := f.aligned.Flush()
	return f.text.String(), err
}
