package mps

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// applyLimits puts the limits of c into effect on a daemon that has those of was: as defaults of servers that start
// later, and on the running servers. A server applies them to new clients; connected clients keep their limits
// (nvidia-cuda-mps-control(1)).
func (d *control) applyLimits(ctx context.Context, was, c configuration) error {
	lines := c.lines(was)
	for _, l := range lines {
		if err := d.setLimit(ctx, l.asDefault()); err != nil {
			return err
		}
	}
	// A server that starts meanwhile may have read the former defaults: repeat until there is no new one.
	var done []string
	for len(lines) > 0 {
		servers, err := d.servers(ctx)
		if err != nil {
			return err
		}
		servers = slices.DeleteFunc(servers, func(pid string) bool { return slices.Contains(done, pid) })
		if len(servers) == 0 {
			break
		}
		for _, pid := range servers {
			if err := d.limitServer(ctx, pid, lines); err != nil {
				return err
			}
		}
		done = append(done, servers...)
	}
	return d.verifyPercentage(ctx, c)
}

// limitServer puts limits into effect on a server. If the server has ended meanwhile, it returns nil.
func (d *control) limitServer(ctx context.Context, pid string, lines []line) error {
	for _, l := range lines {
		err := d.setLimit(ctx, l.on(pid))
		if err == nil {
			continue
		}
		if servers, lost := d.servers(ctx); lost == nil && !slices.Contains(servers, pid) {
			return nil
		}
		return err
	}
	return nil
}

// setLimit executes a line that sets a limit. The daemon's output is empty or the value; any other output is an error,
// because the exit status does not report one.
func (d *control) setLimit(ctx context.Context, line string) error {
	answer, err := d.command(ctx, line)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseFloat(strings.TrimRight(answer, "%MG"), 64); err != nil && answer != "" {
		return fmt.Errorf("%s: rejected by the daemon%s", line, formatOutput(answer))
	}
	return nil
}

// line is a command that sets a limit, without the name of the server.
type line struct{ what, arguments string }

func (l line) asDefault() string       { return "set_default_" + l.what + " " + l.arguments }
func (l line) on(server string) string { return "set_" + l.what + " " + server + " " + l.arguments }

// lines returns the commands that change the limits of was to those of c. No command removes a memory limit: that
// requires a restart of the daemon (reachableFrom).
func (c configuration) lines(was configuration) []line {
	var lines []line
	if c.ActiveThreadPercentage > 0 || was.ActiveThreadPercentage > 0 {
		lines = append(lines, line{"active_thread_percentage", strconv.Itoa(c.percentage())})
	}
	if c.PinnedMemoryBytes > 0 {
		for device := range c.devices() {
			lines = append(lines, line{"device_pinned_mem_limit", fmt.Sprintf("%d %s", device, c.memory())})
		}
	}
	return lines
}

// percentage returns the percentage for the daemon, 1 to 100.
func (c configuration) percentage() int {
	if c.ActiveThreadPercentage == 0 {
		return 100
	}
	return c.ActiveThreadPercentage
}

// reachableFrom reports whether commands can change a daemon with the limits of was to those of c, without a restart.
func (c configuration) reachableFrom(was configuration) bool {
	return c.Visible == was.Visible && (c.PinnedMemoryBytes > 0 || was.PinnedMemoryBytes == 0)
}

// verifyPercentage reads the percentage that is in effect from the daemon and returns an error if it is not c's. The
// memory limit is not verified, because some drivers report it rounded to GiB. Output that is not a number is ignored.
func (d *control) verifyPercentage(ctx context.Context, c configuration) error {
	if c.ActiveThreadPercentage == 0 {
		return nil
	}
	answer, err := d.command(ctx, "get_default_active_thread_percentage")
	if err != nil {
		return err
	}
	got, err := strconv.ParseFloat(strings.TrimSuffix(answer, "%"), 64)
	if err == nil && int(got+0.5) != c.ActiveThreadPercentage {
		return fmt.Errorf("the daemon reports an active thread percentage of %s instead of %d", answer, c.ActiveThreadPercentage)
	}
	return nil
}
