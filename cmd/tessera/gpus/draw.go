package gpus

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// indent begins every line below a GPU's first one.
const indent = "    "

// Draw draws the list by node: the use of each GPU with its pods. A wide screen has also addresses, UUIDs, claims and the meaning of faults. Ages are
// relative to now.
func Draw(s *output.Screen, list List, now time.Time) {
	drawGPUs(s, list.Items, func(int) bool { return true }, now)
	s.Problems(list.Problems)
}

// drawGPUs draws the GPUs with those numbers for which shown is true, by node. The headline of a node counts all of its GPUs.
func drawGPUs(s *output.Screen, list []GPU, shown func(number int) bool, now time.Time) {
	drawn := s.Continued
	for start := 0; start < len(list); {
		end := start
		for end < len(list) && list[end].Node == list[start].Node && list[end].Pool == list[start].Pool {
			end++
		}
		offset, node := start, list[start:end]
		start = end
		selected := output.Select(node, func(i int) bool { return shown(offset + i) })
		if len(selected) == 0 {
			continue
		}
		if drawn {
			s.Line()
		}
		drawn = true
		if !s.NoHeaders {
			drawNode(s, node)
		}
		drawMonitors(s, selected)
		for _, g := range selected {
			drawGPU(s, g, now)
		}
	}
}

// drawNode draws the headline of a node.
func drawNode(s *output.Screen, gpus []GPU) {
	first := gpus[0]
	parts := []output.Part{{Style: output.Bold, Text: first.Node}, {Text: "   " + tally(gpus, func(g GPU) string { return g.Product }, " x ")}}
	parts = append(parts, output.Part{Text: "   " + tally(gpus, func(g GPU) string { return g.Shape }, " ")})
	if faulty := slices.DeleteFunc(slices.Clone(gpus), func(g GPU) bool { return len(g.Faults) == 0 }); len(faulty) > 0 {
		worst := slices.MaxFunc(faulty, func(a, b GPU) int {
			return cmp.Compare(SeverityRank(a.Faults[0].Severity), SeverityRank(b.Faults[0].Severity))
		})
		parts = append(parts, output.Part{
			Style: severityStyle(worst.Faults[0].Severity), Text: "   " + tally(faulty, func(g GPU) string { return g.Faults[0].Severity }, " "),
		})
	}
	about := "   " + first.Driver
	if first.DriverVersion != "" {
		about += ", driver " + first.DriverVersion
	}
	if first.CUDAVersion != "" {
		about += ", CUDA " + first.CUDAVersion
	}
	s.Line(append(parts, output.Part{Style: output.Dim, Text: about})...)
}

// drawMonitors draws the pods and claims that monitor GPUs of a node, once each.
func drawMonitors(s *output.Screen, gpus []GPU) {
	var names []string
	indexes := map[string][]string{}
	for _, g := range gpus {
		for _, h := range g.Monitors {
			name := podsText(h)
			if indexes[name] == nil {
				names = append(names, name)
			}
			if index := strconv.Itoa(g.Index); !slices.Contains(indexes[name], index) {
				indexes[name] = append(indexes[name], index)
			}
		}
	}
	for _, name := range names {
		text := "monitored by " + name
		switch n := len(indexes[name]); {
		case n == len(gpus):
		case n == 1:
			text += ": GPU " + indexes[name][0]
		default:
			text += ": GPUs " + strings.Join(indexes[name], ", ")
		}
		s.Line(output.Part{Style: output.Dim, Text: indent + text})
	}
}

// tally returns the number of GPUs per value of the function, such as "2 idle, 1 mig", in order of first appearance.
func tally(gpus []GPU, of func(GPU) string, between string) string {
	var names []string
	counts := map[string]int{}
	for _, g := range gpus {
		if counts[of(g)] == 0 {
			names = append(names, of(g))
		}
		counts[of(g)]++
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%d%s%s", counts[name], between, name)
	}
	return strings.Join(names, ", ")
}

// drawGPU draws one GPU: its headline, its faults, the picture of its parts, its holders and foreign taints.
func drawGPU(s *output.Screen, g GPU, now time.Time) {
	line := []output.Part{{Text: fmt.Sprintf("  %2d  ", g.Index)}, {Style: output.Bold, Text: g.Product}}
	if g.MemoryBytes > 0 {
		line = append(line, output.Part{Text: "  " + Size(g.MemoryBytes)})
	}
	line = append(line, output.Part{Text: "  "}, output.Part{Style: shapeStyle(g.Shape), Text: g.Shape}, output.Part{Text: "  " + useText(g)})
	if hasSingleHolder(g) && !s.Wide {
		line = append(line, output.Part{Text: podsText(g.Holders[0])})
		g.Holders = nil
	}
	if s.Wide {
		line = append(line, output.Part{Style: output.Dim, Text: "  " + address(g)})
	}
	s.Line(line...)
	drawHealth(s, g, now)
	if cells := gpuCells(g, s.Width-len(indent)); len(cells) > 0 {
		s.Line(append([]output.Part{{Text: indent}}, drawCells(cells)...)...)
	}
	rows := holderRows(g, s.Wide)
	for i, h := range g.Holders {
		drawHolder(s, rows[i], g, h)
		for _, c := range h.Containers {
			s.Line(output.Part{Style: output.Dim, Text: indent + indent + c.text()})
		}
	}
	for _, t := range g.Taints {
		if !IsForeignTaint(g, t) {
			continue
		}
		s.Line(output.Part{Text: indent}, output.Part{Style: output.Red, Text: "! tainted " + taintText(t)})
	}
}

// hasSingleHolder reports whether one claim has the whole GPU, without a condition to draw.
func hasSingleHolder(g GPU) bool {
	return len(g.Holders) == 1 && g.Holders[0].Start == nil && g.Holders[0].Shares == 0 && g.Holders[0].Condition == ""
}

// sharesText returns how many shares are used, and of how many if they are limited.
func sharesText(s Shared) string {
	if s.Shares == 0 {
		return fmt.Sprintf("%d shares", s.UsedShares)
	}
	return fmt.Sprintf("%d of %d shares", s.UsedShares, s.Shares)
}

// sharedText returns the use of a GPU in a shared shape, and whether its memory is limited. An MPS daemon limits each process with every driver.
func sharedText(shape string, s Shared) string {
	text := fmt.Sprintf("%s of %s, %s", Size(s.UsedMemoryBytes), Size(s.MemoryBytes), sharesText(s))
	switch {
	case s.MemoryEnforced == "hard":
		text += ", memory enforced"
	case s.MemoryEnforced == "none" && shape == gpu.TimeShare.String():
		text += ", memory not enforced"
	}
	if s.Compute > 0 {
		text += fmt.Sprintf(", %d %% of the SMs allocated", s.Compute)
	}
	return text
}

// useText returns the used and the free capacity.
func useText(g GPU) string {
	switch {
	case g.Shared != nil:
		return sharedText(g.Shape, *g.Shared)
	case g.MemorySlices != nil && (g.Shape == gpu.MIG.String() || len(g.MemorySlices.Withheld) > 0):
		text := fmt.Sprintf("%d of %d memory slices used, %d free", len(g.MemorySlices.Used), g.MemorySlices.Total, len(g.MemorySlices.Free))
		if n := len(g.MemorySlices.Withheld); n > 0 {
			text += fmt.Sprintf(", %d withheld", n)
		}
		return text
	case g.Shape == gpu.None.String() && g.unavailable():
		return "unavailable"
	case g.Shape == gpu.None.String():
		return "available as " + strings.Join(slices.DeleteFunc(slices.Clone(g.Offers), func(name string) bool { return name == gpu.Monitor.String() }), ", ")
	}
	return ""
}

// address returns the GPU's name, UUID, PCI address and NUMA node.
func address(g GPU) string {
	text := g.Name + "  " + g.UUID
	if g.PCI != "" {
		text += "  " + g.PCI
	}
	if g.NUMA != nil {
		text += fmt.Sprintf("  NUMA %d", *g.NUMA)
	}
	return text
}

func taintText(t Taint) string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	text += ":" + t.Effect
	if len(t.Devices) > 0 {
		text += " on " + strings.Join(t.Devices, ", ")
	}
	return text
}

func shapeStyle(shape string) output.Style {
	return cmp.Or(map[string]output.Style{
		gpu.None.String(): output.Dim, gpu.Whole.String(): output.Blue, gpu.MIG.String(): output.Green,
		gpu.TimeShare.String(): output.Yellow, gpu.MPS.String(): output.Magenta, gpu.VFIO.String(): output.Cyan,
	}[shape], output.Plain)
}

// Size returns the bytes in whole GiB, below one in MiB.
func Size(bytes uint64) string {
	const mi, gi = 1 << 20, 1 << 30
	switch {
	case bytes == 0:
		return "-"
	case bytes < gi:
		return fmt.Sprintf("%dMi", bytes/mi)
	}
	return fmt.Sprintf("%.0fGi", math.Round(float64(bytes)/gi))
}
