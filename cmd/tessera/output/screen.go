package output

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Style is the color or weight of a piece of text.
type Style int

// The styles. The text is complete without them.
const (
	Plain Style = iota
	Bold
	Dim
	Red
	Green
	Yellow
	Blue
	Magenta
	Cyan
	// Invert swaps the colors of text and background.
	Invert
)

// codes are the parameters of Select Graphic Rendition (ECMA-48 8.3.117) by style.
const codes = "0 1 2 31 32 33 34 35 36 7"

// Part is a piece of a line.
type Part struct {
	Style Style
	Text  string
}

// defaultWidth is the width in columns when the output is not a terminal.
const defaultWidth = 100

// Screen writes text with styles. It keeps the first error; see Err.
type Screen struct {
	Out io.Writer
	// Color enables styles.
	Color bool
	// Width is the number of columns. With Cut, longer lines are cut off.
	Width int
	Cut   bool
	// Wide adds details, NoHeaders leaves out headers.
	Wide, NoHeaders bool
	// Continued is set when the next rows are part of a list that the screen has already: tables have no headers then.
	Continued bool
	tables    tableFormat
	err       error
}

// NewScreen returns a screen on the writer. mode is the value of --color. With "auto", only a terminal has colors, unless NO_COLOR is set in the
// environment (no-color.org).
func NewScreen(out io.Writer, mode string) (*Screen, error) {
	s := &Screen{Out: out, Width: defaultWidth}
	terminal := false
	if file, ok := out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			terminal, s.Width, s.Cut = true, columns, true
		}
	}
	switch mode {
	case "always":
		s.Color = true
	case "never":
	case "auto":
		s.Color = terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	default:
		return nil, fmt.Errorf("--color %q: must be one of auto, always, never", mode)
	}
	return s, nil
}

// Line writes the parts as one line without trailing spaces. What a terminal could interpret is escaped.
func (s *Screen) Line(parts ...Part) {
	left := s.Width
	var line strings.Builder
	for _, p := range parts {
		p.Text = escape(p.Text, "")
		if s.Cut {
			p.Text = cut(p.Text, left)
			left -= utf8.RuneCountInString(p.Text)
		}
		if s.Color && p.Style != Plain && p.Text != "" {
			p.Text = fmt.Sprintf("\x1b[%sm%s\x1b[0m", strings.Fields(codes)[p.Style], p.Text)
		}
		line.WriteString(p.Text)
	}
	s.write(strings.TrimRight(line.String(), " ") + "\n")
}

// Wrap writes first and rest as one paragraph, with line breaks between words so that lines fit into the width where possible. All lines but the first are
// indented.
func (s *Screen) Wrap(first Part, indent int, rest Part) {
	column := utf8.RuneCountInString(first.Text)
	parts := []Part{first}
	var line strings.Builder
	for word := range strings.FieldsSeq(rest.Text) {
		n := utf8.RuneCountInString(word)
		if line.Len() > 0 && column+1+n > s.Width {
			s.Line(append(parts, Part{rest.Style, line.String()})...)
			line.Reset()
			parts, column = []Part{{Plain, strings.Repeat(" ", indent)}}, indent
		}
		if line.Len() > 0 {
			line.WriteByte(' ')
			column++
		}
		line.WriteString(word)
		column += n
	}
	s.Line(append(parts, Part{rest.Style, line.String()})...)
}

// Text writes the text as one line, which is never cut off. What a terminal could interpret is escaped.
func (s *Screen) Text(text string) { s.write(escape(text, "") + "\n") }

// Problems writes the problems of a list below it.
func (s *Screen) Problems(problems []string) {
	if len(problems) > 0 {
		s.Line()
	}
	for _, problem := range problems {
		s.Text("! " + problem)
	}
}

// Err returns the first write error.
func (s *Screen) Err() error { return s.err }

func (s *Screen) write(text string) {
	if s.err == nil {
		_, err := io.WriteString(s.Out, text)
		s.fail(err)
	}
}

// fail keeps the first error.
func (s *Screen) fail(err error) { s.err = cmp.Or(s.err, err) }

// cut shortens the text to the number of columns.
func cut(text string, columns int) string {
	runes := []rune(text)
	if len(runes) <= columns {
		return text
	}
	return string(runes[:max(0, columns)])
}
