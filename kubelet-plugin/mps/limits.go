package mps

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// change puts the limits of c into effect on a daemon that has those of was: as defaults of servers that start
// later, and on the running servers. A server applies them to new clients; connected clients keep their limits
// (nvidia-cuda-mps-control(1)).
func (d legacy) change(ctx context.Context, was, c configuration) error {
	limits := c.limits(was)
	for _, l := range limits {
		if err := d.setLimit(ctx, l, ""); err != nil {
			return err
		}
	}
	// A server that starts meanwhile may have read the former defaults: repeat until there is no new one.
	var done []string
	for len(limits) > 0 {
		servers, err := d.servers(ctx)
		if err != nil {
			return err
		}
		servers = slices.DeleteFunc(servers, func(pid string) bool { return slices.Contains(done, pid) })
		if len(servers) == 0 {
			break
		}
		for _, pid := range servers {
			if err := d.limitServer(ctx, pid, limits); err != nil {
				return err
			}
		}
		done = append(done, servers...)
	}
	return nil
}

// limitServer puts limits into effect on a server. If the server has ended meanwhile, it returns nil.
func (d legacy) limitServer(ctx context.Context, pid string, limits []limit) error {
	for _, l := range limits {
		err := d.setLimit(ctx, l, pid)
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

// setLimit sets a limit of a server, or without one the default, and reads it back: drivers refuse a value without a word, and the exit status of a
// command reports nothing (measured with drivers 535, 550 and 580).
func (d legacy) setLimit(ctx context.Context, l limit, server string) error {
	line := l.command("set", server, l.value)
	answer, err := d.command(ctx, line)
	if err != nil {
		return err
	}
	got, err := d.command(ctx, l.command("get", server))
	if err != nil {
		return err
	}
	if got != l.shown {
		return fmt.Errorf("%s: the daemon has %q instead of %q%s", line, got, l.shown, formatOutput(answer))
	}
	return nil
}

// limit is a limit of the daemon: its name in commands, the position of the device for those by device, the value, and how the daemon shows it. Driver 580
// also accepts the UUID as device, and keeps that limit apart: its servers use only that of the position (measured).
type limit struct{ what, device, value, shown string }

// command returns the command that does something with the limit of a server, or with the default.
func (l limit) command(verb, server string, arguments ...string) string {
	name := verb + "_default_" + l.what
	if server != "" {
		name = verb + "_" + l.what
	}
	words := slices.DeleteFunc(append([]string{name, server, l.device}, arguments...), func(word string) bool { return word == "" })
	return strings.Join(words, " ")
}

// limits returns the limits of c that a daemon with those of was does not have. No command removes a memory limit: that
// requires a restart of the daemon (reachableFrom).
func (c configuration) limits(was configuration) []limit {
	var all []limit
	if c.ActiveThreadPercentage > 0 || was.ActiveThreadPercentage > 0 {
		value := strconv.Itoa(c.percentage())
		all = append(all, limit{what: "active_thread_percentage", value: value, shown: value + ".0"})
	}
	for device, bytes := range c.memory() {
		if bytes > 0 {
			all = append(all, limit{what: "device_pinned_mem_limit", device: strconv.Itoa(device), value: formatMemory(bytes), shown: shownMemory(bytes)})
		}
	}
	return all
}

// shownMemory returns a memory limit as the daemon shows it: without the rest below a GiB, from one GiB on.
func shownMemory(bytes int64) string {
	if gib := bytes >> 30; gib > 0 {
		return fmt.Sprintf("%dG", gib)
	}
	return formatMemory(bytes)
}

// percentage returns the percentage for the daemon, 1 to 100.
func (c configuration) percentage() int {
	if c.ActiveThreadPercentage == 0 {
		return 100
	}
	return c.ActiveThreadPercentage
}

// reachableFrom reports whether commands can change a daemon with the limits of was to those of c, without a restart. Both are valid.
func (c configuration) reachableFrom(was configuration) bool {
	if c.Visible != was.Visible {
		return false
	}
	former := was.memory()
	for device, bytes := range c.memory() {
		if bytes == 0 && former[device] > 0 {
			return false
		}
	}
	return true
}
