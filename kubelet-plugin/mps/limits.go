package mps

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// applyLimits puts the limits of c into effect on a daemon that has those of was: as defaults of servers that
// are still to start, and on the servers that run. A server holds its new clients to them; clients that
// are connected keep what they had (nvidia-cuda-mps-control(1)).
func (d *control) applyLimits(ctx context.Context, was, c configuration) error {
	lines := c.lines(was)
	for _, l := range lines {
		if err := d.setLimit(ctx, l.asDefault()); err != nil {
			return err
		}
	}
	// A server that starts meanwhile may have read the former defaults: look until there is no new one.
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

// limitServer puts limits into effect on a server; one that has ended in between needs none.
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

// setLimit has the daemon carry out a line that sets a limit. It answers with nothing or the value; whatever
// else it says is a refusal, which its exit status does not tell.
func (d *control) setLimit(ctx context.Context, line string) error {
	answer, err := d.command(ctx, line)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseFloat(strings.TrimRight(answer, "%MG"), 64); err != nil && answer != "" {
		return fmt.Errorf("%s: the daemon refuses%s", line, formatOutput(answer))
	}
	return nil
}

// line is a command that sets a limit, without the name of the server.
type line struct{ what, arguments string }

func (l line) asDefault() string       { return "set_default_" + l.what + " " + l.arguments }
func (l line) on(server string) string { return "set_" + l.what + " " + server + " " + l.arguments }

// lines returns the commands that lead from the limits of was to those of c. There is none that lifts a
// memory limit: that takes another daemon.
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

// percentage returns the percentage in the daemon's words.
func (c configuration) percentage() int {
	if c.ActiveThreadPercentage == 0 {
		return 100
	}
	return c.ActiveThreadPercentage
}

// reachableFrom reports whether a daemon under the limits of was can be led to those of c.
func (c configuration) reachableFrom(was configuration) bool {
	return c.Visible == was.Visible && (c.PinnedMemoryBytes > 0 || was.PinnedMemoryBytes == 0)
}

// verifyPercentage asks the daemon for the percentage that is in effect. What it says about memory is rounded to
// gibibytes by some drivers and is not asked for; an answer that is no number proves nothing.
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
