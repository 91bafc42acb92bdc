package output

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
)

// AddWatch defines the flags for the changes after a list, with the names of kubectl get.
func (f *Flags) AddWatch(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.Watch, "watch", "w", false, "after the list, print what changes, until interrupted")
	cmd.Flags().BoolVar(&f.WatchEvents, "output-watch-events", false,
		"with --watch, print items as the object of an event whose type is ADDED, MODIFIED or DELETED; not with text, wide and name")
}

// validateWatch returns an error for events that no watch has, or that the format has no place for.
func (f *Flags) validateWatch() error {
	switch {
	case !f.WatchEvents:
		return nil
	case !f.Watch:
		return errors.New("--output-watch-events requires --watch")
	case f.IsText(), f.Format == Name:
		return fmt.Errorf("--output-watch-events: --output %q has no types of events: choose json, yaml, jsonpath=... or custom-columns=", f.Format)
	}
	return nil
}

// event is an item with the type of its change, in the form of kubectl.
type event struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

// Printer writes a result and then, at each call, the items that have changed since. A program gets items one after another, and an item that is gone
// as it was last, as from kubectl get --watch. People get a sentence about it.
type Printer struct {
	flags       *Flags
	out, errOut io.Writer
	screen      *Screen
	encoder     printers.ResourcePrinter
	// started is set after the first result.
	started bool
	// rows are those of the last result, encoded are their values by title.
	rows     []Row
	encoded  map[string]string
	problems []string
}

// Printer returns a printer. out receives the items, errOut messages about them.
func (f *Flags) Printer(out, errOut io.Writer) (*Printer, error) {
	screen, err := f.screen(out)
	if err != nil {
		return nil, err
	}
	screen.tables = newTableFormat()
	encoder, err := f.printer()
	return &Printer{flags: f, out: out, errOut: errOut, screen: screen, encoder: encoder}, err
}

// Print writes the result, or what has changed since the last call.
func (p *Printer) Print(r Result) error {
	rows := r.items()
	c, encoded, err := p.compare(rows)
	if err != nil {
		return err
	}
	problems := slices.DeleteFunc(slices.Clone(r.Problems), func(problem string) bool { return slices.Contains(p.problems, problem) })
	if p.flags.IsText() {
		err = p.draw(r, c, problems)
	} else if err = p.message(problems...); err == nil {
		err = p.printItems(c.items(rows, p.flags.WatchEvents))
	}
	p.started, p.rows, p.encoded, p.problems = true, rows, encoded, r.Problems
	return err
}

// change is the difference between two results.
type change struct {
	// types are the changes of the rows by number, for those that changed.
	types map[int]watch.EventType
	// gone are the rows that the new result does not have.
	gone []Row
}

// compare returns the change since the last result, and the encoded values of the rows by title. Without a watch there is one result, and no value is encoded.
func (p *Printer) compare(rows []Row) (change, map[string]string, error) {
	c := change{types: map[int]watch.EventType{}}
	encoded := make(map[string]string, len(rows))
	for i, row := range rows {
		var value []byte
		if p.flags.Watch {
			var err error
			if value, err = encode(row.Value); err != nil {
				return change{}, nil, err
			}
		}
		encoded[row.Title] = string(value)
		switch last, known := p.encoded[row.Title]; {
		case !known:
			c.types[i] = watch.Added
		case last != string(value):
			c.types[i] = watch.Modified
		}
	}
	for _, row := range p.rows {
		if _, known := encoded[row.Title]; !known {
			c.gone = append(c.gone, row)
		}
	}
	return c, encoded, nil
}

// items returns the changed rows in their order, and those that are gone. With events, their values are events.
func (c change) items(rows []Row, events bool) []Row {
	var changed []Row
	add := func(row Row, change watch.EventType) {
		if events {
			row.Value = event{change, row.Value}
		}
		changed = append(changed, row)
	}
	for i, row := range rows {
		if change, ok := c.types[i]; ok {
			add(row, change)
		}
	}
	for _, row := range c.gone {
		add(row, watch.Deleted)
	}
	return changed
}

// printItems writes items for programs.
func (p *Printer) printItems(rows []Row) error {
	if p.flags.isRows() {
		err := p.flags.printRows(p.screen, rows)
		p.screen.Continued = p.screen.Continued || len(rows) > 0
		return err
	}
	for _, row := range rows {
		if err := printEncoded(p.out, p.encoder, p.flags.Format, row.Value); err != nil {
			return err
		}
	}
	return nil
}

// draw writes the change for people, with the problems that the last result did not have.
func (p *Printer) draw(r Result, c change, problems []string) error {
	for _, row := range c.gone {
		p.screen.Line(Part{Dim, row.Title + " is no longer listed."})
	}
	if !r.DrawsProblems {
		if err := p.message(problems...); err != nil {
			return err
		}
	}
	if err := p.drawChanged(r, c); err != nil {
		return err
	}
	if r.DrawsProblems {
		p.screen.Problems(problems)
	}
	return p.screen.Err()
}

// drawChanged draws the rows that changed, a report that changed as a whole, and the message of a list that has become empty.
func (p *Printer) drawChanged(r Result, c change) error {
	switch {
	case r.Empty != "":
		if !p.started || len(p.rows) > 0 {
			return p.message(r.Empty)
		}
	case len(c.types) == 0:
	case r.isList():
		r.DrawRows(p.screen, func(number int) bool { _, changed := c.types[number]; return changed })
		p.screen.Continued = true
	default:
		if p.started {
			p.screen.Line()
		}
		p.screen.tables = tableFormat{} // a report has several tables
		r.Draw(p.screen)
	}
	return nil
}

// message writes lines that are no output of the verb.
func (p *Printer) message(lines ...string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(p.errOut, line); err != nil {
			return err
		}
	}
	return nil
}
