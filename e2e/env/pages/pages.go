// Package pages follows pages of the documentation as a reader does: it saves their files and runs their commands in order.
package pages

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// Step is a command line of a page. Output is what the page shows below its block, with … in place of what differs; only the last line of a block has one.
type Step struct{ Line, Output string }

// Block is a fenced block of a page. The language is empty for commands, text for the output of the commands above, yaml for manifests and values.
// NotExecuted is the reason why no test executes the block, from the comment above it, or empty.
type Block struct{ Language, Text, NotExecuted string }

// fence is a fenced block of a page, with the comment above it. Blocks in lists are indented.
var fence = regexp.MustCompile("(?ms)(?:^ *<!-- not executed: ([^\n]+) -->\n)?^ *```(\\w*)\n(.*?)^ *```$")

// Blocks returns the blocks of a page in order.
func Blocks(page string) []Block {
	var blocks []Block
	for _, found := range fence.FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, Block{Language: found[2], Text: found[3], NotExecuted: found[1]})
	}
	return blocks
}

// Count returns how many blocks of commands and YAML of a page tests execute, and how many they do not.
func Count(page string) (executed, skipped int) {
	for _, block := range Blocks(page) {
		switch {
		case !block.IsInput():
		case block.NotExecuted != "":
			skipped++
		default:
			executed++
		}
	}
	return executed, skipped
}

// IsInput reports whether a reader runs, applies or saves the block.
func (b Block) IsInput() bool { return b.Language == "" || b.Language == "yaml" }

// Steps returns the command lines of a page in order, without those of blocks that no test executes.
func Steps(page string) []Step {
	var steps []Step
	for _, block := range Blocks(page) {
		switch {
		case block.NotExecuted != "":
		case block.Language == "":
			for line := range strings.Lines(strings.ReplaceAll(block.Text, "\\\n", " ")) {
				if line = strings.TrimSpace(line); line != "" {
					steps = append(steps, Step{Line: line})
				}
			}
		case block.Language == "text" && len(steps) > 0:
			steps[len(steps)-1].Output = strings.TrimSpace(block.Text)
		}
	}
	return steps
}

// file matches a block that a reader saves: its first line is a comment with the name.
var file = regexp.MustCompile(`(?s)^# ([\w-]+\.yaml)\n(.*)$`)

// WriteFiles writes the files of a page into the folder.
func WriteFiles(folder, page string) error {
	for _, block := range Blocks(page) {
		saved := file.FindStringSubmatch(block.Text)
		if block.Language != "yaml" || saved == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, saved[1]), []byte(saved[2]), 0o644); err != nil {
			return fmt.Errorf("save a file of the page: %w", err)
		}
	}
	return nil
}

// Run runs the line and compares its output. A line with an output is repeated until that appears: the log of a pod may be delayed. What the line printed last
// is returned also with an error.
func (s Step) Run(ctx context.Context, shell cluster.Shell) (string, error) {
	out, err := shell.Run(ctx, s.Line)
	if err != nil || s.Output == "" {
		return out, err
	}
	pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(s.Output), "…", `[\s\S]*`) + `\s*$`)
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	err = harness.Poll(ctx, func(ctx context.Context) error {
		var err error
		if out, err = shell.Run(ctx, s.Line); err == nil && !pattern.MatchString(out) {
			err = fmt.Errorf("%s: the output differs from that of the page:\n%s\nwant:\n%s", s.Line, out, s.Output)
		}
		return err
	})
	return out, err
}
