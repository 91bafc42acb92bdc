package output

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Style is how a piece of text looks where there are colours.
type Style int

// The styles. Plain text reads the same without them.
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
	// Invert swaps the colours of letters and ground.
	Invert
)

// codes are the parameters of ANSI's Select Graphic Rendition (ECMA-48 8.3.117), by style.
const codes = "0 1 2 31 32 33 34 35 36 7"

// Part is a piece of a line.
type Part struct {
	Style Style
	Text  string
}

// widthOfPaper is how wide pictures are drawn where there is no terminal.
const widthOfPaper = 100

// Screen is where text goes.
type Screen struct {
	Out io.Writer
	// Colour says whether styles are written.
	Colour bool
	// Width is how many columns a line should have. With Cut longer ones end there.
	Width int
	Cut   bool
	err   error
}

// NewScreen returns the screen on the writer. A terminal has its own width, and colours unless mode is
// "never" or NO_COLOR is set in the environment (no-color.org); anything else has them only when mode
// is "always".
func NewScreen(out io.Writer, mode string) (*Screen, error) {
	s := &Screen{Out: out, Width: widthOfPaper}
	terminal := false
	if file, ok := out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			terminal, s.Width, s.Cut = true, columns, true
		}
	}
	switch mode {
	case "always":
		s.Colour = true
	case "never":
	case "auto":
		s.Colour = terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	default:
		return nil, fmt.Errorf("--color %q: must be one of auto, always, never", mode)
	}
	return s, nil
}

// Line writes one line of parts. Spaces at its end are left out.
func (s *Screen) Line(parts ...Part) {
	left := s.Width
	var line strings.Builder
	for _, p := range parts {
		if s.Cut {
			p.Text = cut(p.Text, left)
			left -= utf8.RuneCountInString(p.Text)
		}
		if s.Colour && p.Style != Plain && p.Text != "" {
			p.Text = fmt.Sprintf("\x1b[%sm%s\x1b[0m", strings.Fields(codes)[p.Style], p.Text)
		}
		line.WriteString(p.Text)
	}
	s.write(strings.TrimRight(line.String(), " ") + "\n")
}

// Wrap writes a text behind a first piece, broken between words so that lines end before the screen's width where they can. What follows the first line stands
// below the text, behind so many spaces.
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

// Text writes lines as they are.
func (s *Screen) Text(text string) { s.write(text) }

// Err returns the first error of writing.
func (s *Screen) Err() error { return s.err }

func (s *Screen) write(text string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.Out, text)
	}
}

// cut shortens the text to so many columns.
func cut(text string, columns int) string {
	runes := []rune(text)
	if len(runes) <= columns {
		return text
	}
	return string(runes[:max(0, columns)])
}
