package output

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// hostile is what a tenant could write into a field: it clears the screen, hides text, forges a line, sets the title, and more.
const hostile = "\x1b[2Jname\x1b]0;title\x07\u009b8m\x9b1m\r\n! forged\t\u202egnp.exe\u200b\x7f\U000e0041"

// harmless reports whether no terminal interprets anything in the text but line breaks.
func harmless(text string) bool {
	return !strings.ContainsAny(strings.ReplaceAll(text, "\n", ""), "\x1b\x07\u009b\r\t\u202e\u200b\x7f\U000e0041") && !strings.Contains(text, "\x9b1m")
}

func TestScreenEscapes(t *testing.T) {
	for name, write := range map[string]func(*Screen){
		"line": func(s *Screen) { s.Line(Part{Plain, "GPU "}, Part{Plain, hostile}) },
		"paragraph": func(s *Screen) {
			s.Wrap(Part{Plain, hostile}, 2, Part{Plain, strings.ReplaceAll(hostile, "\r\n", " ")})
		},
		"text":  func(s *Screen) { s.Text(hostile) },
		"table": func(s *Screen) { s.Table(Columns("NAME", "NODE"), [][]string{{hostile, "node"}, {"", "node"}}) },
	} {
		var out strings.Builder
		screen, err := NewScreen(&out, "never")
		if err != nil {
			t.Fatal(err)
		}
		write(screen)
		if !harmless(out.String()) || strings.Contains(out.String(), "\n! forged") {
			t.Errorf("%s: %q", name, out.String())
		}
		if !strings.Contains(out.String(), `\x1b[2Jname\x1b]0;title\a\u009b8m\x9b1m`) {
			t.Errorf("%s hides what was written: %q", name, out.String())
		}
	}
}

// Colors are written, texts in any language are not changed.
func TestScreenKeepsText(t *testing.T) {
	var out strings.Builder
	screen := &Screen{Out: &out, Color: true, Width: 80}
	screen.Line(Part{Red, `Überhitzt: 高温 \x1b`})
	if want := "\x1b[31mÜberhitzt: 高温 \\x1b\x1b[0m\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestMessagesAreEscaped(t *testing.T) {
	var out strings.Builder
	if n, err := Messages(&out).Write([]byte("a\tb\n" + hostile)); err != nil || n != len("a\tb\n"+hostile) {
		t.Fatal(n, err)
	}
	if !strings.HasPrefix(out.String(), "a\tb\n\\x1b[2J") || !harmless(strings.ReplaceAll(out.String(), "\t", "")) {
		t.Errorf("%q", out.String())
	}
}

// JSON and YAML have the same value, for programs, and nothing for terminals.
func TestEncodingsAreEscaped(t *testing.T) {
	for _, text := range []string{strings.ToValidUTF8(hostile, "") + " <ü>", "\x01\u202e", "\x01\\x01", "plain\u202e", "\u2028\ufeff\ue000\U0001f600\u00a0", ""} {
		for _, format := range []Format{JSON, YAML} {
			var out strings.Builder
			if err := (&Flags{Format: format}).Print(&out, Result{Value: map[string]string{"name": text}}); err != nil {
				t.Fatal(err)
			}
			var got map[string]string
			decode := json.Unmarshal
			if format == YAML {
				decode = func(text []byte, into any) error { return yaml.Unmarshal(text, into) }
			}
			if err := decode([]byte(out.String()), &got); err != nil || got["name"] != text {
				t.Errorf("%s of %q: %q, %v: %q", format, text, out.String(), err, got["name"])
			}
			if !harmless(out.String()) {
				t.Errorf("%s of %q: %q", format, text, out.String())
			}
		}
	}
}

// TestTemplatesAreEscaped covers the formats whose text has no quotes.
func TestTemplatesAreEscaped(t *testing.T) {
	for _, format := range []Format{"jsonpath={.name}", "custom-columns=NAME:.name", Name} {
		var out strings.Builder
		value := map[string]string{"name": hostile}
		r := Result{Value: value, Rows: []Row{{Name: hostile, Value: value}}}
		if err := (&Flags{Format: format}).Print(&out, r); err != nil {
			t.Fatal(err)
		}
		if text := strings.ReplaceAll(out.String(), "\t", ""); !harmless(text) || !strings.Contains(text, `\x1b[2Jname`) {
			t.Errorf("%s: %q", format, out.String())
		}
	}
}
