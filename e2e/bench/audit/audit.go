// Package audit counts requests in the audit log of an API server.
package audit

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Count returns the number of requests of the user agents with the prefix that were received from one time until before another, by "verb resource" or
// "verb resource/subresource". Watches count when they start, all other requests when they are complete.
func Count(log io.Reader, userAgent string, from, until time.Time) (map[string]int, error) {
	found := map[string]int{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if e.counts() && strings.HasPrefix(e.UserAgent, userAgent) && !e.At.Before(from) && e.At.Before(until) {
			found[strings.TrimSuffix(e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")]++
		}
	}
	return found, lines.Err()
}

// event has the fields of a line of the log that are counted.
type event struct {
	Stage, Verb, UserAgent string
	ObjectRef              struct{ Resource, Subresource string }
	At                     time.Time `json:"requestReceivedTimestamp"`
}

// counts reports whether the event is the one by which its request counts.
func (e event) counts() bool {
	if e.Verb == "watch" {
		return e.Stage == "ResponseStarted"
	}
	return e.Stage == "ResponseComplete"
}
