package dialect

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// key is a row of the table: a package, or a file that is not Go, and a kind of text.
type key struct{ row, kind string }

func (p place) key() key { return key{p.row, p.kind} }

// table has the counts by group.
type table map[key][]int

func count(places []place, groups int) table {
	counts := table{}
	for _, p := range places {
		if counts[p.key()] == nil {
			counts[p.key()] = make([]int, groups)
		}
		counts[p.key()][p.group]++
	}
	return counts
}

func readTable(file string, groups int) (table, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return table{}, nil
	}
	if err != nil {
		return nil, err
	}
	counts := table{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) != groups+2 {
			return nil, fmt.Errorf("read %s: %q does not have %d columns: after a conflict take the version of main, and update", file, strings.TrimSpace(line), groups+2)
		}
		row := make([]int, groups)
		for i, field := range fields[2:] {
			if row[i], err = strconv.Atoi(field); err != nil {
				return nil, fmt.Errorf("read %s: %w", file, err)
			}
		}
		counts[key{fields[0], fields[1]}] = row
	}
	return counts, nil
}

func (k key) order(other key) int {
	return cmp.Or(cmp.Compare(k.row, other.row), cmp.Compare(k.kind, other.kind))
}

// text writes the table. Rows without words are left out.
func (t table) text(groups []string) string {
	var text strings.Builder
	text.WriteString("# Words of testdata/words.txt by package and kind of text; they may only fall. Written by make generate.\n")
	write := func(row, kind string, columns []string) {
		fmt.Fprintf(&text, "%-52s %-11s", row, kind)
		for i, column := range columns {
			fmt.Fprintf(&text, " %*s", len(groups[i]), column)
		}
		text.WriteString("\n")
	}
	write("# package or file", "kind", groups)
	for _, k := range slices.SortedFunc(maps.Keys(t), key.order) {
		var columns []string
		for _, n := range t[k] {
			columns = append(columns, strconv.Itoa(n))
		}
		if slices.Max(t[k]) > 0 {
			write(k.row, k.kind, columns)
		}
	}
	return text.String()
}

// at returns a count; rows that are missing are zero.
func (t table) at(k key, group int) int {
	if row := t[k]; row != nil {
		return row[group]
	}
	return 0
}

// lowered returns the table with the counts of now where they are lower. A new row may have as much as removed rows had, and with moved every
// row may have what others lost, so that no sum rises.
func (t table) lowered(now table, moved bool) table {
	result := table{}
	width := 0
	for _, row := range now {
		width = max(width, len(row))
	}
	for group := range width {
		t.lowerGroup(result, now, group, moved)
	}
	return result
}

func (t table) lowerGroup(result, now table, group int, moved bool) {
	credits := map[string]int{}
	for k := range t {
		if _, there := now[k]; !there || moved {
			credits[k.kind] += max(0, t.at(k, group)-now.at(k, group))
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(now), key.order) {
		allowed, is := t.at(k, group), now.at(k, group)
		if _, old := t[k]; is > allowed && (!old || moved) {
			taken := min(is-allowed, credits[k.kind])
			credits[k.kind] -= taken
			allowed += taken
		}
		if result[k] == nil && (is > 0 || allowed > 0) && slices.Max(now[k]) > 0 {
			if _, old := t[k]; !old && min(is, allowed) == 0 {
				continue
			}
			result[k] = make([]int, len(now[k]))
		}
		if result[k] != nil {
			result[k][group] = min(is, allowed)
		}
	}
}

// change is a count that is not what the table has.
type change struct {
	key
	group, before, now int
}

// compare returns the counts that differ.
func compare(before, now table) []change {
	all := map[key]bool{}
	groups := 0
	for _, t := range []table{before, now} {
		for k, row := range t {
			all[k], groups = true, len(row)
		}
	}
	var changes []change
	for _, k := range slices.SortedFunc(maps.Keys(all), key.order) {
		for group := range groups {
			if b, n := before.at(k, group), now.at(k, group); b != n {
				changes = append(changes, change{k, group, b, n})
			}
		}
	}
	return changes
}

// lines are lines of files that were added since the table was written. Without git's history every line is one.
type lines map[string]map[int]bool

func (l lines) has(p place) bool {
	in, changed := l[p.file]
	return l == nil || changed && (in == nil || in[p.line])
}

// addedLines returns the lines that git reports as added since the last commit that wrote the table. Untracked files are included as a whole.
func addedLines(t *testing.T) lines {
	t.Helper()
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	written := git("log", "-1", "--format=%H", "--", "e2e/repo/verify/dialect/"+countFile)
	if written == "" {
		return nil
	}
	added := lines{}
	for file := range strings.Lines(git("ls-files", "--others", "--exclude-standard")) {
		added[strings.TrimSpace(file)] = nil
	}
	file := ""
	for line := range strings.Lines(git("diff", "--unified=0", "--no-color", "--no-ext-diff", written)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok {
			file, added[name] = name, map[int]bool{}
		}
		var from, length int
		if !strings.HasPrefix(line, "@@ ") {
			continue
		}
		span := strings.TrimPrefix(strings.Fields(line)[2], "+")
		length = 1
		if n, _ := fmt.Sscanf(span, "%d,%d", &from, &length); n == 0 {
			continue
		}
		for i := range length {
			added[file][from+i] = true
		}
	}
	return added
}
