package main

import (
	"strings"
	"testing"
)

func TestRenderScreen(t *testing.T) {
	got, err := renderScreen("tessera gpus", "\x1b[31m! Fatal\x1b[0m <b>\n\n  two\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`y="29" textLength="7.8" fill="#7f8c99">$</text>`, `> tessera gpus</text>`,
		`x="16.0" y="47" textLength="54.6" fill="#ff7b72">! Fatal</text>`, `x="70.6" y="47" textLength="31.2"> &lt;b&gt;</text>`,
		`y="83" textLength="39.0">  two</text>`, `height="104"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s:\n%s", want, got)
		}
	}
	if _, err := renderScreen("x", "\x1b[99mx\x1b[0m"); err == nil {
		t.Error("took an unknown code")
	}
}
