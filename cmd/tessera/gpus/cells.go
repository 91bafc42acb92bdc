package gpus

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// cell is one part of the picture of a GPU: a MIG device, a memory slice or a share.
type cell struct {
	label string
	// fill is repeated after the label up to the width.
	fill byte
	// width is the number of columns between the bars.
	width int
	style output.Style
}

// The widths in columns: of one memory slice with one of its bars, and of a shared GPU.
const (
	minSliceWidth  = 4
	maxSliceWidth  = 10
	maxSharedWidth = 72
)

// gpuCells returns the picture of the GPU in at most that many columns; nil for a GPU without parts.
func gpuCells(g GPU, columns int) []cell {
	switch {
	case g.Shared != nil:
		return shareCells(g, min(columns, maxSharedWidth)-1)
	case g.MemorySlices != nil && (g.Shape == gpu.MIG.String() || len(g.MemorySlices.Withheld) > 0 || g.Shape == gpu.None.String() && slices.ContainsFunc(g.Faults, Fault.partial)):
		return sliceCells(g, min(max((columns-1)/g.MemorySlices.Total, minSliceWidth), maxSliceWidth))
	}
	return nil
}

// sliceCells returns a cell per MIG device and one per other memory slice.
func sliceCells(g GPU, width int) []cell {
	var cells []cell
	faulty := faultyStyles(g)
	for slice := 0; slice < g.MemorySlices.Total; {
		i := slices.IndexFunc(g.Holders, func(h Holder) bool { return h.Start != nil && *h.Start == slice && h.Size != nil && *h.Size > 0 })
		switch {
		case i >= 0:
			n, style := *g.Holders[i].Size, cmp.Or(faulty[slice], holderColor(i))
			cells = append(cells, cell{label: shortProfile(g.Holders[i].Profile, n*width-1), fill: ' ', width: n*width - 1, style: style})
			slice += n
			continue
		case slices.Contains(g.MemorySlices.Withheld, slice):
			cells = append(cells, cell{fill: 'x', width: width - 1, style: output.Red})
		case slices.Contains(g.MemorySlices.Free, slice):
			cells = append(cells, freeCell(faulty[slice], width-1))
		default:
			cells = append(cells, cell{fill: '?', width: width - 1, style: output.Red})
		}
		slice++
	}
	return cells
}

// faultyStyles returns the style of the memory slices with a partial fault.
func faultyStyles(g GPU) map[int]output.Style {
	styles := map[int]output.Style{}
	for _, f := range g.Faults {
		for _, slice := range f.MemorySlices {
			styles[slice] = output.Red
		}
	}
	return styles
}

// freeCell returns the cell of a free memory slice; with the style of a fault, that of an unavailable one.
func freeCell(faulty output.Style, width int) cell {
	if faulty != output.Plain {
		return cell{fill: '!', width: width, style: faulty}
	}
	return cell{fill: '.', width: width, style: output.Dim}
}

// shortProfile returns the profile's name if it fits, otherwise the part before the dot.
func shortProfile(profile string, columns int) string {
	if len(profile) <= columns {
		return profile
	}
	half, _, _ := strings.Cut(profile, ".")
	return half
}

// shareCells returns a cell per share with a width proportional to its memory, and one for the free memory.
func shareCells(g GPU, columns int) []cell {
	var cells []cell
	column := func(bytes uint64) int {
		return int(float64(columns) * float64(bytes) / float64(max(1, g.Shared.MemoryBytes, g.Shared.UsedMemoryBytes)))
	}
	taken := uint64(0)
	for i, h := range g.Holders {
		from := column(taken)
		taken += h.MemoryBytes
		width := max(1, column(taken)-from-1)
		label := cmp.Or(slices.Collect(podNames(h))...)
		cells = append(cells, cell{label: label, fill: ' ', width: width, style: holderColor(i)})
	}
	if rest := columns - column(taken) - 1; rest > 0 {
		cells = append(cells, cell{fill: '.', width: rest, style: output.Dim})
	}
	return cells
}

// podNames yields the names of the holder's pods.
func podNames(h Holder) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, p := range h.Pods {
			if !yield(p.Name) {
				return
			}
		}
	}
}

// holderColor returns the color of a holder; adjacent holders have different colors.
func holderColor(i int) output.Style {
	return []output.Style{output.Green, output.Cyan, output.Blue, output.Magenta, output.Yellow}[i%5]
}

// drawCells returns the cells in a row with bars between them.
func drawCells(cells []cell) []output.Part {
	parts := []output.Part{{Text: "|"}}
	for _, c := range cells {
		label := c.label
		if len(label) > c.width {
			label = label[:c.width]
		}
		text := label + strings.Repeat(string(c.fill), c.width-len(label))
		parts = append(parts, output.Part{Style: c.style, Text: text}, output.Part{Text: "|"})
	}
	return parts
}
