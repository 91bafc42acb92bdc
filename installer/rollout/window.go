package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// window reports whether a maintenance window is open, and otherwise when it opens next. The start is local time in the window's zone; the duration
// is elapsed time, independent of clock changes. A start that occurs twice on a day with a clock change is the first occurrence; one that does not
// exist is shifted by one hour.
func window(w *v1alpha1.MaintenanceWindow, now time.Time) (open bool, opens time.Time, err error) {
	if w == nil {
		return true, time.Time{}, nil
	}
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("read time zone of the maintenance window: %w", err)
	}
	start, err := time.Parse("15:04", w.Start)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("read start of the maintenance window: %w", err)
	}
	local := now.In(zone)
	// A window that opened yesterday may still be open; the next one opens within a week.
	for day := -1; day <= 7; day++ {
		begins := time.Date(local.Year(), local.Month(), local.Day()+day, start.Hour(), start.Minute(), 0, 0, zone)
		if before := begins.Add(-time.Hour); before.Hour() == begins.Hour() && before.Minute() == begins.Minute() {
			begins = before
		}
		named := time.Date(local.Year(), local.Month(), local.Day()+day, 12, 0, 0, 0, zone).Weekday().String()[:3]
		if len(w.Days) > 0 && !slices.Contains(w.Days, named) {
			continue
		}
		switch {
		case begins.After(now):
			return false, begins, nil
		case now.Before(begins.Add(w.Duration.Duration)):
			return true, time.Time{}, nil
		}
	}
	return false, time.Time{}, nil
}
