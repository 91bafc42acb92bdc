package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// sharingPage has a table between these lines, which is derived from the rules that the agent publishes.
const (
	sharingPage      = "docs/sharing.md"
	enforcementBegin = "<!-- Written by go generate ./e2e/repo/generate from api/gpu/limiter.go. -->\n"
	enforcementEnd   = "<!-- end of the generated table -->\n"
)

// writeEnforcement replaces the table of sharingPage.
func writeEnforcement(repository string) error {
	path := filepath.Join(repository, sharingPage)
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the table of enforcement: %w", err)
	}
	before, rest, found := strings.Cut(string(text), enforcementBegin)
	_, after, ended := strings.Cut(rest, enforcementEnd)
	if !found || !ended {
		return fmt.Errorf("write the table of enforcement: %s lacks its lines %q and %q", path, enforcementBegin, enforcementEnd)
	}
	if err := os.WriteFile(path, []byte(before+enforcementBegin+renderEnforcement()+enforcementEnd+after), 0o644); err != nil {
		return fmt.Errorf("write the table of enforcement: %w", err)
	}
	return nil
}

// renderEnforcement lists the attribute memoryEnforced of each shared shape by how the driver limits memory.
func renderEnforcement() string {
	columns := []struct {
		limiter gpu.Limiter
		title   string
	}{
		{gpu.NotLimited, "a driver before 615, cgroup v1, or neither controller"},
		{gpu.LimitedByMisc, "driver 615 and newer, controller `misc`"},
		{gpu.LimitedByDmem, "driver 615 and newer, controller `dmem` (Linux 6.14 and newer)"},
	}
	var table strings.Builder
	table.WriteString("| type of the device |")
	for _, c := range columns {
		fmt.Fprintf(&table, " %s |", c.title)
	}
	table.WriteString("\n|---|---|---|---|\n")
	for _, shape := range []gpu.Shape{gpu.TimeShare, gpu.MPS} {
		fmt.Fprintf(&table, "| `%v` |", shape)
		for _, c := range columns {
			value := "none"
			if c.limiter.Limits(shape) {
				value = "hard"
			}
			fmt.Fprintf(&table, " `%s` |", value)
		}
		table.WriteString("\n")
	}
	return table.String()
}
