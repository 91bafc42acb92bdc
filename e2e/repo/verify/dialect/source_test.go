package dialect

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// The kinds of text that are counted. A file that is not Go has the kind text.
const (
	comments     = "comments"
	identifiers  = "identifiers"
	plainStrings = "strings"
	testNames    = "tests"
	otherText    = "text"
)

// place is the position of a word.
type place struct {
	// row is the package or, for other files, the file.
	row, kind string
	group     int
	file      string
	line      int
	text      string
}

// generated matches the first lines of generated files; their sources are counted instead.
var generated = regexp.MustCompile(`(?m)\A(?:.*\n){0,4}.*(?:Code generated .* DO NOT EDIT|[Gg]enerated (?:from|by) .*do not edit|Written by go generate)`)

// changelog lists renames: its text in backticks is not counted.
const changelog = "CHANGELOG.md"

var codeSpan = regexp.MustCompile("`[^`\n]*`")

// collector finds the words in one file.
type collector struct {
	words  *vocabulary
	file   string
	source string
	set    *token.FileSet
	places []place
	// names are string literals that name tests.
	names map[*ast.BasicLit]bool
}

// placesIn returns the words in a file.
func placesIn(words *vocabulary, file, source string) ([]place, error) {
	c := &collector{words: words, file: file, source: source, set: token.NewFileSet(), names: map[*ast.BasicLit]bool{}}
	if generated.MatchString(source[:min(len(source), 2000)]) {
		return nil, nil
	}
	if file == changelog {
		source = codeSpan.ReplaceAllStringFunc(source, func(span string) string { return strings.Repeat(" ", len(span)) })
	}
	if path.Ext(file) != ".go" {
		line, at := 1, 0
		words.find(source, func(group, offset int) {
			line, at = line+strings.Count(source[at:offset], "\n"), offset
			c.places = append(c.places, place{file, otherText, group, file, line, lineAt(source, offset)})
		})
		return c.places, nil
	}
	parsed, err := parser.ParseFile(c.set, file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range parsed.Comments {
		for _, comment := range group.List {
			if !strings.HasPrefix(comment.Text, "//go:") {
				c.note(comments, comment.Pos(), comment.Text)
			}
		}
	}
	for _, declaration := range parsed.Decls {
		ast.Inspect(declaration, c.visit)
	}
	return c.places, nil
}

// note counts the words of a text that begins at the position.
func (c *collector) note(kind string, at token.Pos, text string) {
	row := path.Dir(c.file)
	c.words.find(text, func(group, offset int) {
		line := c.set.Position(at).Line
		if kind == comments {
			line += strings.Count(text[:offset], "\n")
		}
		c.places = append(c.places, place{row, kind, group, c.file, line, lineAt(c.source, c.set.Position(at).Offset+min(offset, len(text)))})
	})
}

func (c *collector) declared(names ...*ast.Ident) {
	for _, name := range names {
		if c.words.identifiers[name.Name] {
			continue
		}
		c.note(identifiers, name.Pos(), name.Name)
	}
}

// declaredIn counts the identifiers on the left side of a definition.
func (c *collector) declaredIn(define token.Token, left ...ast.Expr) {
	for _, expression := range left {
		if name, ok := expression.(*ast.Ident); ok && define == token.DEFINE {
			c.declared(name)
		}
	}
}

// visit counts identifiers where they are declared, and strings except import paths and struct tags.
func (c *collector) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.FuncDecl:
		if strings.HasSuffix(c.file, "_test.go") && testFunction.MatchString(n.Name.Name) {
			c.note(testNames, n.Name.Pos(), n.Name.Name)
		} else {
			c.declared(n.Name)
		}
	case *ast.TypeSpec:
		c.declared(n.Name)
	case *ast.ValueSpec:
		c.declared(n.Names...)
	case *ast.Field:
		c.declared(n.Names...)
		if n.Tag != nil {
			c.names[n.Tag] = false
		}
	case *ast.AssignStmt:
		c.declaredIn(n.Tok, n.Lhs...)
	case *ast.RangeStmt:
		c.declaredIn(n.Tok, n.Key, n.Value)
	case *ast.CallExpr:
		c.nameOf(n)
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "name" && strings.HasSuffix(c.file, "_test.go") {
			c.isName(n.Value)
		}
	case *ast.BasicLit:
		c.literal(n)
	}
	return true
}

var (
	testFunction = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)
	specFunction = regexp.MustCompile(`^(Run|Describe|Context|When|It|Specify|DescribeTable|Entry|By)$`)
)

// nameOf marks the string that names the test which the call defines.
func (c *collector) nameOf(call *ast.CallExpr) {
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	if specFunction.MatchString(name) && len(call.Args) > 0 {
		c.isName(call.Args[0])
	}
}

func (c *collector) isName(expression ast.Expr) {
	if literal, ok := expression.(*ast.BasicLit); ok {
		c.names[literal] = true
	}
}

func (c *collector) literal(n *ast.BasicLit) {
	isName, known := c.names[n]
	if n.Kind != token.STRING || known && !isName {
		return
	}
	text, err := strconv.Unquote(n.Value)
	if err != nil {
		return
	}
	if isName {
		c.note(testNames, n.Pos(), text)
	} else {
		c.note(plainStrings, n.Pos(), text)
	}
}

// lineAt returns the line of the source around the offset.
func lineAt(source string, offset int) string {
	offset = min(offset, len(source))
	begin := strings.LastIndexByte(source[:offset], '\n') + 1
	end := strings.IndexByte(source[offset:], '\n')
	if end < 0 {
		end = len(source) - offset
	}
	return strings.TrimSpace(source[begin : offset+end])
}
