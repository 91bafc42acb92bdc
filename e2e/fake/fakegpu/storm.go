package fakegpu

import (
	"context"
	"fmt"
	"time"
)

// Storm reports an XID at a place at this rate per second, evenly, until ctx ends; it returns the number reported. A machine that cannot
// keep up catches up in bursts. A listener that is more than 4,095 events behind loses the oldest.
func Storm(ctx context.Context, dir string, at Place, code, rate int) (posted int, err error) {
	if rate < 1 {
		return 0, fmt.Errorf("report %d XIDs a second: must be 1 or more", rate)
	}
	err = withState(dir, func(s *session) error {
		if err := s.checkGPU(at.GPU); err != nil {
			return err
		}
		tick := time.NewTicker(max(time.Second/time.Duration(rate), time.Millisecond))
		defer tick.Stop()
		began := time.Now()
		for {
			select {
			case <-ctx.Done():
				return nil
			case now := <-tick.C:
				for due := int(now.Sub(began).Seconds() * float64(rate)); posted < due; posted++ {
					if err := s.post(at.event(eventXID, uint64(code))); err != nil {
						return err
					}
				}
			}
		}
	})
	return posted, err
}
