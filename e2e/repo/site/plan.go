package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/pages"
)

// index lists all pages of the site, by section. home is the page above them.
const (
	index = "docs/README.md"
	home  = "README.md"
)

// plan is the site: its pages in the order of the index, and the images of docs.
type plan struct {
	pages  []page
	images fs.FS
}

// page is a page of the site.
type page struct {
	// source is its path in the repository; url is its folder in the site, "." for the home page.
	source, url string
	// title is its heading, about its content according to the index, text the page below its heading.
	title, about, text string
	// section reports whether the page lists the pages below it.
	section bool
}

var (
	sectionLine = regexp.MustCompile(`^## (.+)$`)
	pageLine    = regexp.MustCompile(`^\| (\[.*\]\(.*\)) \| .* \| (.*) \|$`)
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading     = regexp.MustCompile(`^(?:<!-- .* -->\n+)?# (.+)\n`) // a comment names the generator
	notInURL    = regexp.MustCompile(`[^a-z0-9]+`)
)

// readPlan reads the index and its pages. A page below docs that the index does not list is an error; pages for contributors are read in the repository.
func readPlan(repository fs.FS) (*plan, error) {
	text, err := fs.ReadFile(repository, index)
	if err != nil {
		return nil, err
	}
	images, err := fs.Sub(repository, "docs/images")
	if err != nil {
		return nil, err
	}
	front := page{source: home, url: ".", section: true}
	p := &plan{pages: []page{front}, images: images}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if found := sectionLine.FindStringSubmatch(line); found != nil {
			section = strings.Trim(notInURL.ReplaceAllString(strings.ToLower(found[1]), "-"), "-")
			p.pages = append(p.pages, page{source: index, url: section, title: found[1], section: true})
		}
		row := pageLine.FindStringSubmatch(line)
		if row == nil || section == "" {
			continue
		}
		for _, target := range link.FindAllStringSubmatch(row[1], -1) {
			source := path.Join("docs", target[1])
			if strings.HasPrefix(source, "docs/") && !strings.HasPrefix(source, "docs/dev/") {
				p.pages = append(p.pages, page{source: source, url: path.Join(section, strings.TrimSuffix(path.Base(source), ".md")), about: row[2]})
			}
		}
	}
	for i := range p.pages {
		if err := p.pages[i].read(repository); err != nil {
			return nil, err
		}
	}
	return p, p.complete(repository)
}

// read reads the title and the text of a page; a section has the pages below it as its text.
func (p *page) read(repository fs.FS) error {
	if p.source == index {
		return nil
	}
	text, err := fs.ReadFile(repository, p.source)
	if err != nil {
		return fmt.Errorf("read a page of %s: %w", index, err)
	}
	found := heading.FindStringSubmatch(string(text))
	if found == nil {
		return fmt.Errorf("%s does not begin with a heading", p.source)
	}
	p.title, p.text = found[1], strings.TrimPrefix(string(text), found[0])
	return nil
}

// complete returns an error if the index lists a page twice or lacks a page.
func (p *plan) complete(repository fs.FS) error {
	listed := map[string]int{}
	for _, page := range p.pages {
		listed[page.source]++
	}
	return fs.WalkDir(repository, "docs", func(name string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == "docs/dev":
			return fs.SkipDir
		case path.Ext(name) == ".md" && name != index && listed[name] != 1:
			return fmt.Errorf("%s lists %s %d times, want once", index, name, listed[name])
		}
		return nil
	})
}

// write writes the content for Hugo into a folder, with the images.
func (p *plan) write(folder, ref string) error {
	for weight, page := range p.pages {
		front, err := yaml.Marshal(map[string]any{"title": page.title, "weight": weight + 1, "description": page.about})
		if err != nil {
			return err
		}
		text := p.contents(page.url)
		if page.source != index {
			text = p.relink(page, ref)
		}
		name := page.url + ".md"
		if page.section {
			name = filepath.Join(page.url, "_index.md")
		}
		name = filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte("---\n"+string(front)+"---\n"+text), 0o644); err != nil {
			return err
		}
	}
	return os.CopyFS(filepath.Join(folder, "images"), p.images)
}

// contents lists the pages of a section.
func (p *plan) contents(section string) string {
	var list strings.Builder
	for _, page := range p.pages {
		if name, below := strings.CutPrefix(page.url, section+"/"); below {
			fmt.Fprintf(&list, "- [%s](%s/): %s\n", page.title, name, page.about)
		}
	}
	return list.String()
}

// relink replaces the links of a page: those to pages lead to these pages of the site, those to images to the copies, those to other files of the
// repository to GitHub.
func (p *plan) relink(from page, ref string) string {
	return link.ReplaceAllStringFunc(from.text, func(found string) string {
		target, anchor, _ := strings.Cut(link.FindStringSubmatch(found)[1], "#")
		if target == "" || strings.Contains(target, "://") {
			return found
		}
		if anchor != "" {
			anchor = "#" + anchor
		}
		return "](" + p.target(from, path.Join(path.Dir(from.source), target), ref) + anchor + ")"
	})
}

// target returns the link from a page to a file of the repository.
func (p *plan) target(from page, file, ref string) string {
	if image, found := strings.CutPrefix(file, "docs/images/"); found {
		return relative(from.url, path.Join("images", image))
	}
	to := slices.IndexFunc(p.pages, func(page page) bool { return page.source == file && file != index })
	switch {
	case to >= 0:
		return relative(from.url, p.pages[to].url+"/")
	case file == index || file == "docs":
		return relative(from.url, "")
	default:
		return "https://github.com/tessera-gpu/tessera/blob/" + ref + "/" + file
	}
}

// relative returns the path from the folder of a page to another path of the site.
func relative(from, to string) string {
	if from == "." {
		return "./" + to
	}
	return strings.Repeat("../", strings.Count(from, "/")+1) + to
}

// blocks returns how many blocks of the pages tests execute.
func (p *plan) blocks() string {
	executed, skipped := 0, 0
	for _, page := range p.pages {
		if page.source == home {
			continue
		}
		runs, not := pages.Count(page.text)
		executed, skipped = executed+runs, skipped+not
	}
	return fmt.Sprintf("tests execute %d of %d blocks of commands and YAML", executed, executed+skipped)
}
