package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// references are the attributes that refer to other files.
var references = map[string]string{"a": "href", "link": "href", "img": "src", "script": "src"}

// document is what a page of the site has for others: its identifiers, and its references.
type document struct {
	ids  map[string]bool
	refs []string
}

// checkLinks follows every reference of every page within the site, to its identifier. It returns how many it followed, and those that lead nowhere.
func checkLinks(site fs.FS, base string) (int, []string, error) {
	root, err := url.Parse(base)
	if err != nil {
		return 0, nil, err
	}
	documents, err := readDocuments(site)
	if err != nil {
		return 0, nil, err
	}
	checked := 0
	var broken []string
	for name, page := range documents {
		at := root.JoinPath(name)
		for _, ref := range page.refs {
			target, err := at.Parse(ref)
			if err != nil {
				broken = append(broken, fmt.Sprintf("%s: %s: %v", name, ref, err))
				continue
			}
			file, within := strings.CutPrefix(target.Path, root.Path)
			if target.Host != root.Host || target.Scheme != root.Scheme {
				continue
			}
			checked++
			if !within || !exists(site, documents, file, target.Fragment) {
				broken = append(broken, name+": "+ref)
			}
		}
	}
	slices.Sort(broken)
	return checked, slices.Compact(broken), nil
}

// exists reports whether a file of the site exists and has the identifier. A folder is its index.
func exists(site fs.FS, documents map[string]document, file, id string) bool {
	file = path.Clean(file)
	if info, err := fs.Stat(site, file); err == nil && info.IsDir() {
		file = path.Join(file, "index.html")
	}
	if page, found := documents[file]; found && id != "" {
		return page.ids[id]
	}
	_, err := fs.Stat(site, file)
	return err == nil
}

// readDocuments parses all pages of a site.
func readDocuments(site fs.FS) (map[string]document, error) {
	documents := map[string]document{}
	return documents, fs.WalkDir(site, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".html" {
			return err
		}
		file, err := site.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		tree, err := html.Parse(file)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		page := document{ids: map[string]bool{}}
		for node := range tree.Descendants() {
			for _, attribute := range node.Attr {
				switch attribute.Key {
				case "id":
					page.ids[attribute.Val] = true
				case references[node.Data]:
					page.refs = append(page.refs, attribute.Val)
				}
			}
		}
		documents[name] = page
		return nil
	})
}
