package containerd

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"github.com/pelletier/go-toml/v2"
)

// mark precedes the line that Import adds.
const mark = "# The next line was added by Tessera, which enables CDI.\n"

// Import returns the text of a main file with one pattern appended to its imports. All other bytes are unchanged. An empty or nil text becomes a file
// of version 2.
func Import(file string, text []byte, pattern string) ([]byte, error) {
	before, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	line := mark + "imports = [" + strconv.Quote(pattern) + "]\n"
	var edited []byte
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		edited = []byte("version = 2\n" + line)
	case before.Imports == nil:
		edited = append([]byte(line), text...)
	default:
		list, err := findImports(text)
		if err != nil {
			return nil, fmt.Errorf("edit %s: %w", file, err)
		}
		separator := ", "
		if list.empty {
			separator = ""
		} else if list.comma {
			separator = " "
		}
		edited = bytes.Join([][]byte{text[:list.end], []byte(separator + strconv.Quote(pattern)), text[list.end:]}, nil)
	}
	return edited, sameButImports(file, text, edited, append(before.Imports, pattern))
}

// Forget reverts Import. What Import created from an empty text becomes nil: no file. A text without the pattern is unchanged.
func Forget(file string, text []byte, pattern string) ([]byte, error) {
	before, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	var kept []string
	for _, other := range before.Imports {
		if other != pattern {
			kept = append(kept, other)
		}
	}
	if len(kept) == len(before.Imports) {
		return text, nil
	}
	line := mark + "imports = [" + strconv.Quote(pattern) + "]\n"
	if string(text) == "version = 2\n"+line {
		return nil, nil
	}
	edited := bytes.Replace(text, []byte(line), nil, 1)
	if len(edited) == len(text) {
		edited = takeOut(text, pattern)
	}
	return edited, sameButImports(file, text, edited, kept)
}

// takeOut removes a pattern with its comma.
func takeOut(text []byte, pattern string) []byte {
	quoted := `(?:` + regexp.QuoteMeta(strconv.Quote(pattern)) + `|'` + regexp.QuoteMeta(pattern) + `')`
	list, err := findImports(text)
	if err != nil {
		return text
	}
	part := text[list.begin:list.end]
	for _, form := range []string{`,[ \t]*` + quoted, quoted + `[ \t]*,[ \t]*`, quoted} {
		if at := regexp.MustCompile(form).FindIndex(part); at != nil {
			return bytes.Join([][]byte{text[:list.begin+at[0]], text[list.begin+at[1]:]}, nil)
		}
	}
	return text
}

// sameButImports returns an error if an edit changed anything except the imports.
func sameButImports(file string, before, after []byte, imports []string) error {
	var old, edited map[string]any
	if err := toml.Unmarshal(before, &old); err != nil {
		return err
	}
	if err := toml.Unmarshal(after, &edited); err != nil {
		return fmt.Errorf("edit %s: the result is no valid TOML: %w", file, err)
	}
	d, err := parse(file, after)
	if err != nil {
		return err
	}
	delete(old, "imports")
	delete(edited, "imports")
	if len(old) == 0 {
		delete(edited, "version")
	}
	same := len(d.Imports) == len(imports) && (len(imports) == 0 || reflect.DeepEqual(d.Imports, imports))
	if !same || len(old)+len(edited) > 0 && !reflect.DeepEqual(old, edited) {
		return fmt.Errorf("edit %s: the edit would change more than the imports", file)
	}
	return nil
}

// list is the position of the import elements in a text: from the opening bracket to the end of the last element or comma.
type list struct {
	begin, end   int
	empty, comma bool
}

var importsLine = regexp.MustCompile(`(?m)^[ \t]*(?:imports|"imports"|'imports')[ \t]*=[ \t]*\[`)

// findImports returns the position of the imports among the keys before the first table.
func findImports(text []byte) (list, error) {
	at := importsLine.FindIndex(text)
	if at == nil {
		return list{}, errors.New("cannot find the line of the imports")
	}
	found := list{begin: at[1], end: at[1], empty: true}
	for i := at[1]; i < len(text); i++ {
		switch c := text[i]; c {
		case ']':
			return found, nil
		case '#':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case '"', '\'':
			i = skipString(text, i)
			found.end, found.empty, found.comma = i+1, false, false
		case ',':
			found.end, found.comma = i+1, true
		}
	}
	return list{}, errors.New("the imports have no end")
}

// skipString returns the end of the string that starts at i.
func skipString(text []byte, i int) int {
	quote := text[i]
	for i++; i < len(text) && text[i] != quote; i++ {
		if quote == '"' && text[i] == '\\' {
			i++
		}
	}
	return min(i, len(text)-1)
}

// DropIn returns a file that contains only the section of the CRI plugin.
func DropIn(comment string, section map[string]any) ([]byte, error) {
	text, err := toml.Marshal(map[string]any{"version": 2, "plugins": map[string]any{CRI: section}})
	if err != nil {
		return nil, fmt.Errorf("write the section of the CRI plugin: %w", err)
	}
	text = append([]byte(comment), text...)
	d, err := parse("the drop-in", text)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(d.Plugins[CRI], section) {
		return nil, errors.New("write the section of the CRI plugin: it does not read back as it was")
	}
	return text, nil
}
