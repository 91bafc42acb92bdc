package main

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestCheckLinks(t *testing.T) {
	page := func(text string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("<!doctype html><html><body>" + text + "</body></html>")}
	}
	site := fstest.MapFS{
		"index.html": page(`<h2 id="top">x</h2><a href="a/">a</a><a href="/base/a/#part">part</a><a href="#top">top</a><a href="https://other.example/x">web</a>` +
			`<a href="mailto:a@b">mail</a><img src="images/x.svg">`),
		"a/index.html": page(`<h2 id="part">part</h2><a href="../">home</a><a href="../b/">gone</a><a href="../#bottom">no id</a>` +
			`<script src="/base/x.js"></script><a href="/outside/">outside</a>`),
		"images/x.svg": {},
	}
	checked, broken, err := checkLinks(site, "https://example.com/base/")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a/index.html: ../#bottom", "a/index.html: ../b/", "a/index.html: /base/x.js", "a/index.html: /outside/"}
	if !slices.Equal(broken, want) {
		t.Errorf("got %q, want %q", broken, want)
	}
	if checked != 9 {
		t.Errorf("checked %d references, want 9", checked)
	}
}
