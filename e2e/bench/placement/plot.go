package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// draw writes a plot per mix: acceptance over load, a line per policy, where at least two loads were run.
func (b *bench) draw(results []result) error {
	for _, m := range b.mixes {
		p := plot{title: fmt.Sprintf("%s, %d GPUs: accepted slices over load", m.name, goalGPUs)}
		for _, name := range append([]string{bound, ours}, peers()...) {
			p.add(name, results, m)
		}
		if len(p.lines) == 0 || len(p.lines[0].points) < 2 {
			continue
		}
		if err := p.write(filepath.Join(b.plots, "placement-"+m.name+".svg")); err != nil {
			return err
		}
	}
	return nil
}

// plot is a diagram of lines.
type plot struct {
	title string
	lines []line
}

// line is one policy.
type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// add adds the policy's line.
func (p *plot) add(name string, results []result, m mix) {
	l := line{name: name}
	for _, r := range results {
		if t, ok := r.tallies[name]; ok && r.mix.name == m.name && r.gpus == goalGPUs && r.lifetime == exponential {
			l.points = append(l.points, point{r.load, t.Acceptance()})
		}
	}
	if len(l.points) > 0 {
		slices.SortFunc(l.points, func(a, b point) int { return int(1e6 * (a.x - b.x)) })
		p.lines = append(p.lines, l)
	}
}

// The drawing: a field of lines, with their names at its right.
const (
	left, top, wide, high, margin = 50, 40, 480, 320, 150
	leastY, ticks                 = .6, 4
)

// write writes the plot as SVG.
func (p plot) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var out strings.Builder
	p.render(&out)
	return os.WriteFile(path, []byte(out.String()), 0o644)
}

func (p plot) render(w io.StringWriter) {
	put := func(format string, args ...any) { w.WriteString(fmt.Sprintf(format+"\n", args...)) } //nolint:errcheck // a strings.Builder does not fail
	first, last := p.lines[0].points[0].x, p.lines[0].points[len(p.lines[0].points)-1].x
	x := func(v float64) float64 { return left + wide*(v-first)/(last-first) }
	y := func(v float64) float64 { return top + high*(1-v)/(1-leastY) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`, left+wide+margin, top+high+40)
	put(`<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="24" font-size="15">%s</text>`, left, p.title)
	for i := range ticks + 1 {
		v := leastY + (1-leastY)*float64(i)/ticks
		put(`<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.1f</text>`, left, y(v), wide, left-6, y(v)+4, v)
	}
	for _, at := range p.lines[0].points {
		put(`<text x="%.1f" y="%d" text-anchor="middle">%g</text>`, x(at.x), top+high+18, at.x)
	}
	for i, l := range p.lines {
		color := fmt.Sprintf("hsl(%d,70%%,40%%)", i*360/len(p.lines))
		var path []string
		for _, at := range l.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(at.x), y(max(leastY, at.y))))
		}
		put(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(path, " "), color)
		put(`<text x="%d" y="%d" fill="%s">%s</text>`, left+wide+12, top+12+18*i, color, l.name)
	}
	put(`</svg>`)
}
