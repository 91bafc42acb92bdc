package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// screens are the pictures of the CLI by their name in docs/images: outputs that its tests compare with what it prints.
var screens = map[string]string{
	"gpus.svg":   "cmd/tessera/gpus/testdata/color.txt",
	"doctor.svg": "cmd/tessera/doctor/testdata/faults-color.txt",
}

// colors are the attributes of a text by its code of Select Graphic Rendition; the CLI uses no others.
var colors = map[string]string{
	"1":  ` font-weight="bold"`,
	"2":  ` fill="#7f8c99"`,
	"31": ` fill="#ff7b72"`,
	"32": ` fill="#7ee787"`,
	"33": ` fill="#e3b341"`,
	"34": ` fill="#79c0ff"`,
	"35": ` fill="#d2a8ff"`,
	"36": ` fill="#76e3ea"`,
}

// Sizes of a character and of the margin, in pixels.
const (
	charWidth  = 7.8
	lineHeight = 18
	margin     = 16
)

// styled is a text that ends at the next reset, with its code, or the text up to the next code.
var styled = regexp.MustCompile("\x1b\\[(\\d+)m([^\x1b]*)\x1b\\[0m|[^\x1b]+")

// writeScreens draws the outputs of the CLI.
func writeScreens(repository string) error {
	files := map[string]string{}
	for name, source := range screens {
		text, err := os.ReadFile(filepath.Join(repository, source))
		if err != nil {
			return err
		}
		verb := strings.TrimSuffix(name, ".svg")
		if files[name], err = renderScreen("tessera "+verb, string(text)); err != nil {
			return fmt.Errorf("draw %s: %w", source, err)
		}
	}
	return write(filepath.Join(repository, "docs", "images"), files)
}

// renderScreen returns a terminal with a command and its output as SVG. Each part has a fixed width, so that columns are aligned with any font.
func renderScreen(command, output string) (string, error) {
	lines := append([]string{"\x1b[2m$\x1b[0m " + command}, strings.Split(strings.TrimRight(output, "\n"), "\n")...)
	var text strings.Builder
	widest := 0
	for row, line := range lines {
		column := 0
		for _, part := range styled.FindAllStringSubmatch(line, -1) {
			content := part[0]
			attributes := ""
			if part[1] != "" {
				known := false
				if attributes, known = colors[part[1]]; !known {
					return "", fmt.Errorf("line %d has the unknown code %s", row, part[1])
				}
				content = part[2]
			}
			if length := utf8.RuneCountInString(content); length > 0 {
				var escaped strings.Builder
				if err := xml.EscapeText(&escaped, []byte(content)); err != nil {
					return "", err
				}
				fmt.Fprintf(&text, "<text x=\"%.1f\" y=\"%d\" textLength=\"%.1f\"%s>%s</text>\n",
					margin+float64(column)*charWidth, margin+(row+1)*lineHeight-5, float64(length)*charWidth, attributes, escaped.String())
				column += length
			}
		}
		widest = max(widest, column)
	}
	width, height := 2*margin+int(float64(widest)*charWidth), 2*margin+len(lines)*lineHeight
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-label="Output of %[3]s">
<style>text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px;white-space:pre}</style>
<rect width="%[1]d" height="%[2]d" rx="8" fill="#0d1117"/>
<g fill="#e6edf3">
%[4]s</g>
</svg>
`, width, height, command, text.String()), nil
}
