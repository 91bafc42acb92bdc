package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// audit counts the installer's requests to the API server.
type audit struct{ plane *lab.Computer }

// count is requests of one span of time.
type count struct {
	// Reads, Writes and Watches are completed requests; Lease counts reads and writes of leases, which the others do not
	// include.
	Reads, Writes, Watches, Lease int
	// Kinds are reads and writes by "verb resource".
	Kinds map[string]int
}

func (c count) total() int { return c.Reads + c.Writes }

// event has the fields of a line of the log that are counted.
type event struct {
	Stage     string
	Verb      string
	ObjectRef struct{ Resource, Subresource string }
	At        time.Time `json:"requestReceivedTimestamp"`
}

// between counts the installer's requests that were received in a span of time.
func (a *audit) between(ctx context.Context, from, until time.Time) (count, error) {
	c := count{Kinds: map[string]int{}}
	// The log is large and inside the control plane: only the installer's lines are copied.
	out, err := a.plane.Exec(ctx, "grep", "-F", `"userAgent":"`+account, recipe.AuditLog)
	if err != nil {
		return count{}, fmt.Errorf("read the audit log: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return count{}, fmt.Errorf("read the audit log: %w", err)
		}
		// The event of a watch is written when it starts; all others when the request is complete.
		if !e.At.Before(from) && e.At.Before(until) {
			c.add(e)
		}
	}
	return c, lines.Err()
}

func (c *count) add(e event) {
	switch {
	case e.Verb == "watch":
		if e.Stage == "ResponseStarted" {
			c.Watches++
		}
	case e.Stage != "ResponseComplete":
	case e.ObjectRef.Resource == "leases":
		c.Lease++
	default:
		c.Kinds[strings.TrimSuffix(e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")]++
		if e.Verb == "get" || e.Verb == "list" {
			c.Reads++
		} else {
			c.Writes++
		}
	}
}
