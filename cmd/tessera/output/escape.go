package output

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// escape returns the text with everything that a terminal could interpret replaced by its Go notation, such as \x1b: control and formatting characters
// and bytes that are no UTF-8, except the kept characters. Texts from the cluster are written by its tenants.
func escape(text, kept string) string {
	var escaped strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&escaped, `\x%02x`, text[0])
		case strconv.IsGraphic(r), strings.ContainsRune(kept, r):
			escaped.WriteRune(r)
		default:
			escaped.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		text = text[size:]
	}
	return escaped.String()
}

// escapeJSON replaces characters that encoding/json leaves as they are, such as the control characters from U+007F, by their escapes. The value that
// the JSON encodes does not change.
func escapeJSON(encoded string) string {
	var escaped strings.Builder
	for _, r := range encoded {
		switch {
		case r < utf8.RuneSelf-1, strconv.IsGraphic(r): // before DEL, only the line breaks between values are control characters
			escaped.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&escaped, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&escaped, `\u%04x`, r)
		}
	}
	return escaped.String()
}

// marker precedes a character in the JSON that becomes YAML: the encoder of YAML quotes strings with it, and writes it as markerText.
const (
	marker     = `\u0001`
	markerText = `\x01`
)

// markYAML marks the characters of the JSON that an encoder of YAML leaves as they are and a terminal could interpret.
func markYAML(encoded []byte) []byte {
	var marked strings.Builder
	for _, r := range string(encoded) {
		switch {
		case r >= utf8.RuneSelf-1 && unicode.IsControl(r): // the parser of YAML, which reads the JSON, refuses it
			fmt.Fprintf(&marked, `\u%04x`, r)
			continue
		case keptByYAML(r):
			marked.WriteString(marker)
		}
		marked.WriteRune(r)
	}
	return []byte(marked.String())
}

// keptByYAML reports whether the encoder of YAML leaves the character as it is although a terminal could interpret it. The encoder escapes control
// characters, byte order marks, and everything beyond the Basic Multilingual Plane.
func keptByYAML(r rune) bool {
	return r >= utf8.RuneSelf && r < 0xfffe && r != 0xfeff && r != '\u2028' && r != '\u2029' && !unicode.IsControl(r) && !strconv.IsGraphic(r)
}

// escapeYAML replaces the marked characters by their escapes. The value that the YAML encodes is that of the JSON before markYAML.
func escapeYAML(encoded string) string {
	var escaped strings.Builder
	for {
		before, after, found := strings.Cut(encoded, markerText)
		escaped.WriteString(before)
		if !found {
			return escaped.String()
		}
		r, size := utf8.DecodeRuneInString(after)
		if keptByYAML(r) {
			fmt.Fprintf(&escaped, `\u%04X`, r)
			after = after[size:]
		} else {
			escaped.WriteString(markerText)
		}
		encoded = after
	}
}

// messages is a writer of messages to people.
type messages struct{ to io.Writer }

// Messages returns a writer that escapes what a terminal could interpret, except line breaks and tabs. Each Write has whole characters.
func Messages(to io.Writer) io.Writer { return messages{to} }

// Write implements io.Writer.
func (m messages) Write(text []byte) (int, error) {
	if _, err := io.WriteString(m.to, escape(string(text), "\n\t")); err != nil {
		return 0, err
	}
	return len(text), nil
}
