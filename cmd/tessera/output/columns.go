package output

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

// column is a column of the format custom-columns.
type column struct {
	header string
	path   *jsonpath.JSONPath
}

// parseColumns returns the columns of a specification in the form of kubectl: HEADER:PATH, separated by commas.
func parseColumns(specification string) ([]column, error) {
	var columns []column
	for part := range strings.SplitSeq(specification, ",") {
		header, path, ok := strings.Cut(part, ":")
		if !ok || header == "" || path == "" {
			return nil, fmt.Errorf("--output custom-columns: %q must have the form HEADER:PATH, such as NAME:.name", part)
		}
		path = strings.TrimSuffix(strings.TrimPrefix(path, "{"), "}")
		if !strings.HasPrefix(path, ".") {
			path = "." + path
		}
		parsed := jsonpath.New(header).AllowMissingKeys(true)
		if err := parsed.Parse("{" + path + "}"); err != nil {
			return nil, fmt.Errorf("--output custom-columns: path of %s: %w", header, err)
		}
		columns = append(columns, column{header, parsed})
	}
	return columns, nil
}

// printColumns writes a table with the columns of the format custom-columns.
func (f *Flags) printColumns(s *Screen, items []Row) error {
	columns, err := parseColumns(strings.TrimPrefix(string(f.Format), customColumns))
	if err != nil {
		return err
	}
	var headers []string
	for _, c := range columns {
		headers = append(headers, c.header)
	}
	var rows [][]string
	for _, item := range items {
		raw, err := encode(item.Value)
		if err != nil {
			return err
		}
		var fields any
		if err := utiljson.Unmarshal(raw, &fields); err != nil {
			return err
		}
		var cells []string
		for _, c := range columns {
			cell, err := c.cell(fields)
			if err != nil {
				return err
			}
			cells = append(cells, cell)
		}
		rows = append(rows, cells)
	}
	if len(rows) > 0 {
		s.Cut = false
		s.Table(Columns(headers...), rows)
	}
	return s.Err()
}

// cell returns the values at the column's path, separated by commas.
func (c column) cell(fields any) (string, error) {
	found, err := c.path.FindResults(fields)
	if err != nil {
		return "", fmt.Errorf("--output custom-columns: path of %s: %w", c.header, err)
	}
	var values []string
	for _, list := range found {
		for i := range list {
			var text bytes.Buffer
			if err := c.path.PrintResults(&text, []reflect.Value{list[i]}); err != nil {
				return "", err
			}
			values = append(values, text.String())
		}
	}
	if len(values) == 0 {
		return "<none>", nil
	}
	return strings.Join(values, ","), nil
}
