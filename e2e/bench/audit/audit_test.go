package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Each request of the agent in the time span counts once. The lines have the form of audit.k8s.io/v1.
func TestCount(t *testing.T) {
	const log = `{"stage":"ResponseComplete","verb":"get","userAgent":"agent/v1","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z"}
{"stage":"ResponseStarted","verb":"get","userAgent":"agent/v1","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:01.000000Z"}
{"stage":"ResponseStarted","verb":"watch","userAgent":"agent/v1","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:01.000000Z"}
{"stage":"ResponseComplete","verb":"watch","userAgent":"agent/v1","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:01.000000Z"}
{"stage":"ResponseComplete","verb":"patch","userAgent":"agent/v1","objectRef":{"resource":"nodes","subresource":"status"},"requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z"}
{"stage":"ResponseComplete","verb":"get","userAgent":"agent/v1","requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z"}
{"stage":"ResponseComplete","verb":"get","userAgent":"other/v1","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z"}
{"stage":"ResponseComplete","verb":"get","userAgent":"agent/v1","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:03.000000Z"}
`
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	got, err := Count(strings.NewReader(log), "agent", from, from.Add(3*time.Second))
	if diff := cmp.Diff(map[string]int{"get pods": 1, "watch pods": 1, "patch nodes/status": 1, "get ": 1}, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if _, err := Count(strings.NewReader("no event\n"), "agent", from, from); err == nil {
		t.Error("a line that is no event: got no error")
	}
}
