package gpus

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// cell is one part of the picture of a GPU.
type cell struct {
	label string
	// fill is what the cell is filled with around its label.
	fill byte
	// width is the number of columns, without the bars around it.
	width int
	style output.Style
}

// The widths of the picture of one memory slice, with one of its bars, and the widest picture of a
// shared GPU.
const (
	narrowest = 4
	widest    = 10
	widestBar = 72
)

// cellsOf returns the picture of the GPU in at most so many columns; none where there is nothing to see.
func cellsOf(g GPU, columns int) []cell {
	switch {
	case g.Shared != nil:
		return shareCells(g, min(columns, widestBar)-1)
	case g.Slices != nil && (g.Shape == gpu.MIG.String() || len(g.Slices.Withheld) > 0 || g.Shape == gpu.None.String() && slices.ContainsFunc(g.Ailments, Ailment.partial)):
		return sliceCells(g, min(max((columns-1)/g.Slices.Total, narrowest), widest))
	}
	return nil
}

// sliceCells returns a cell per instance and per other memory slice.
func sliceCells(g GPU, width int) []cell {
	var cells []cell
	sick := sickSlices(g)
	for slice := 0; slice < g.Slices.Total; {
		i := slices.IndexFunc(g.Holders, func(h Holder) bool { return h.Start != nil && *h.Start == slice && h.Size != nil && *h.Size > 0 })
		switch {
		case i >= 0:
			n, style := *g.Holders[i].Size, cmp.Or(sick[slice], color(i))
			cells = append(cells, cell{label: short(g.Holders[i].Profile, n*width-1), fill: ' ', width: n*width - 1, style: style})
			slice += n
			continue
		case slices.Contains(g.Slices.Withheld, slice):
			cells = append(cells, cell{fill: 'x', width: width - 1, style: output.Red})
		case slices.Contains(g.Slices.Free, slice):
			cells = append(cells, free(sick[slice], width-1))
		default:
			cells = append(cells, cell{fill: '?', width: width - 1, style: output.Red})
		}
		slice++
	}
	return cells
}

// sickSlices returns the style of the memory slices that are not well, where not all are.
func sickSlices(g GPU) map[int]output.Style {
	sick := map[int]output.Style{}
	for _, a := range g.Ailments {
		for _, slice := range a.Slices {
			sick[slice] = output.Red
		}
	}
	return sick
}

// free returns the picture of a free memory slice; one with a style is not given to claims.
func free(sick output.Style, width int) cell {
	if sick != output.Plain {
		return cell{fill: '!', width: width, style: sick}
	}
	return cell{fill: '.', width: width, style: output.Dim}
}

// short returns the profile's name if it fits, or else its first half.
func short(profile string, columns int) string {
	if len(profile) <= columns {
		return profile
	}
	half, _, _ := strings.Cut(profile, ".")
	return half
}

// shareCells returns a cell per share, as wide as its part of the memory, and one for the rest.
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
		cells = append(cells, cell{label: label, fill: ' ', width: width, style: color(i)})
	}
	if rest := columns - column(taken) - 1; rest > 0 {
		cells = append(cells, cell{fill: '.', width: rest, style: output.Dim})
	}
	return cells
}

func podNames(h Holder) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, p := range h.Pods {
			if !yield(p.Name) {
				return
			}
		}
	}
}

// color tells neighbours apart.
func color(i int) output.Style {
	return []output.Style{output.Green, output.Cyan, output.Blue, output.Magenta, output.Yellow}[i%5]
}

// strip returns the cells in a row, with bars between them.
func strip(cells []cell) []output.Part {
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
