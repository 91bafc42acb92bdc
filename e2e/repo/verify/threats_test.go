package verify

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThreatModelNamesTests checks that each row of an attempt names a test, and that every named test is in the named file.
func TestThreatModelNamesTests(t *testing.T) {
	top := root(t)
	page, err := os.ReadFile(filepath.Join(top, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("((?:`(?:Test|Fuzz)[A-Za-z]+`(?:, )?)+) in `([^`]+_test.go)`")
	name := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z]+)`")
	proofs, attempts := 0, 0
	for line := range strings.Lines(string(page)) {
		found := named.FindAllStringSubmatch(line, -1)
		if row := strings.Split(line, "|"); len(row) == 5 && !strings.Contains(line, "---") && !strings.Contains(line, "| attempt |") && strings.Contains(row[3], "_test.go") {
			attempts++
		}
		for _, match := range found {
			text, err := os.ReadFile(filepath.Join(top, match[2]))
			if err != nil {
				t.Errorf("docs/threat-model.md: %v", err)
				continue
			}
			for _, test := range name.FindAllStringSubmatch(match[1], -1) {
				proofs++
				if !strings.Contains(string(text), "func "+test[1]+"(") {
					t.Errorf("docs/threat-model.md: %s is not in %s", test[1], match[2])
				}
			}
		}
	}
	if attempts < 10 || proofs < attempts {
		t.Errorf("%d attempts and %d tests", attempts, proofs)
	}
}
