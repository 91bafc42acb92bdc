package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/audit"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// audits counts the installer's requests to the API server.
type audits struct{ plane *lab.Computer }

// count is requests of one span of time.
type count struct {
	// Reads, Writes and Watches are completed requests; Lease counts reads and writes of leases, which the others do not
	// include.
	Reads, Writes, Watches, Lease int
	// Kinds are reads and writes by "verb resource".
	Kinds map[string]int
}

func (c count) total() int { return c.Reads + c.Writes }

// between counts the installer's requests that were received in a span of time.
func (a *audits) between(ctx context.Context, from, until time.Time) (count, error) {
	// The log is large and inside the control plane: only the installer's lines are copied.
	out, err := a.plane.Exec(ctx, "grep", "-F", `"userAgent":"`+account, recipe.AuditLog)
	if err != nil {
		return count{}, fmt.Errorf("read the audit log: %w", err)
	}
	found, err := audit.Count(bytes.NewReader(out), account, from, until)
	c := count{Kinds: map[string]int{}}
	for what, number := range found {
		c.add(what, number)
	}
	return c, err
}

func (c *count) add(what string, number int) {
	verb, resource, _ := strings.Cut(what, " ")
	switch {
	case verb == "watch":
		c.Watches += number
	case resource == "leases":
		c.Lease += number
	default:
		c.Kinds[what] = number
		if verb == "get" || verb == "list" {
			c.Reads += number
		} else {
			c.Writes += number
		}
	}
}
