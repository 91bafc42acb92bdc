package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

func TestWindow(t *testing.T) {
	night := func(zone string, days ...string) *v1alpha1.MaintenanceWindow {
		return &v1alpha1.MaintenanceWindow{Start: "22:00", Duration: metav1.Duration{Duration: 4 * time.Hour}, TimeZone: zone, Days: days}
	}
	early := &v1alpha1.MaintenanceWindow{Start: "02:30", Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "Europe/Berlin"}
	whole := &v1alpha1.MaintenanceWindow{Start: "00:00", Duration: metav1.Duration{Duration: 24 * time.Hour}, TimeZone: "UTC", Days: []string{"Sun"}}
	tests := []struct {
		name, now string
		window    *v1alpha1.MaintenanceWindow
		open      bool
		opens     string
	}{
		{"none is always open", "2026-03-02T12:00:00Z", nil, true, ""},
		{"before it", "2026-03-02T21:59:59Z", night("UTC"), false, "2026-03-02T22:00:00Z"},
		{"at its beginning", "2026-03-02T22:00:00Z", night("UTC"), true, ""},
		{"after midnight", "2026-03-03T01:59:59Z", night("UTC"), true, ""},
		{"at its end", "2026-03-03T02:00:00Z", night("UTC"), false, "2026-03-03T22:00:00Z"},
		{"the day is that of its beginning", "2026-03-03T01:00:00Z", night("UTC", "Mon"), true, ""},
		{"not of the day that it reaches", "2026-03-02T01:00:00Z", night("UTC", "Mon"), false, "2026-03-02T22:00:00Z"},
		{"once a week", "2026-03-03T02:00:00Z", night("UTC", "Mon"), false, "2026-03-09T22:00:00Z"},
		{"in the zone's evening", "2026-03-02T21:00:00Z", night("Europe/Berlin"), true, ""},
		{"not in UTC's", "2026-03-03T01:30:00Z", night("Europe/Berlin"), false, "2026-03-03T21:00:00Z"},
		{"the zone's day", "2026-03-02T15:00:00Z", night("Asia/Tokyo", "Tue"), false, "2026-03-03T13:00:00Z"},
		{"the night when clocks go forward is as long", "2026-03-29T00:59:59Z", night("Europe/Berlin", "Sat"), true, ""},
		{"and ends in time", "2026-03-29T01:00:00Z", night("Europe/Berlin", "Sat"), false, "2026-04-04T20:00:00Z"},
		{"the night when clocks go back is as long", "2026-10-25T00:00:00Z", night("Europe/Berlin", "Sat"), false, "2026-10-31T21:00:00Z"},
		{"an hour that does not exist is moved", "2026-03-29T01:45:00Z", early, true, ""},
		{"an hour that exists twice is the first", "2026-10-25T00:45:00Z", early, true, ""},
		{"and does not come again", "2026-10-25T01:45:00Z", early, false, "2026-10-26T01:30:00Z"},
		{"a whole day", "2026-03-01T23:59:59Z", whole, true, ""},
		{"and no other", "2026-03-02T00:00:00Z", whole, false, "2026-03-08T00:00:00Z"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, test.now)
			if err != nil {
				t.Fatal(err)
			}
			open, opens, err := window(test.window, now)
			if err != nil {
				t.Fatal(err)
			}
			message := ""
			if !opens.IsZero() {
				message = opens.UTC().Format(time.RFC3339)
			}
			if open != test.open || message != test.opens {
				t.Errorf("window at %s: open %v, opens %q; want %v, %q", test.now, open, message, test.open, test.opens)
			}
		})
	}
}

func TestWindowOfAnUnknownZone(t *testing.T) {
	h := newHistory(v1alpha1.UpgradePolicy{Window: &v1alpha1.MaintenanceWindow{Start: "22:00", TimeZone: "Mars/Olympus"}}, 1)
	h.want("new")
	d := h.turn()
	if len(d.Grant) != 0 || d.Waits[0].Reason != WaitWindow || d.Status.Reason == "" {
		t.Errorf("an unknown zone: %+v, %+v", d, d.Status)
	}
}
