package template

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// kind is a row of the text: devices that a class or a selector does not distinguish.
type kind struct {
	shape, product, profile, memory string
}

// draw writes how many devices of each kind are published, in their order.
func (t template) draw(s *output.Screen) {
	var kinds []kind
	counts := map[kind]int{}
	devices := 0
	for _, part := range t.pool.Slices {
		for _, d := range part.Devices {
			k := kindOf(d)
			if counts[k] == 0 {
				kinds = append(kinds, k)
			}
			counts[k]++
			devices++
		}
	}
	s.Text(fmt.Sprintf("%s: %d GPUs, %d devices of %s in %d ResourceSlices", t.machine, len(t.node.GPUs), devices, t.driver, len(t.pool.Slices)))
	var rows [][]string
	for _, k := range kinds {
		rows = append(rows, []string{k.shape, k.product, k.profile, k.memory, strconv.Itoa(counts[k])})
	}
	s.Table(output.Columns("TYPE", "PRODUCT", "PROFILE", "MEMORY", "DEVICES"), rows)
	var unknown []string
	for _, name := range t.unknown {
		unknown = append(unknown, string(name))
	}
	slices.Sort(unknown)
	s.Text("Placeholders: " + strings.Join(unknown, ", "))
}

func kindOf(d resourceapi.Device) kind {
	text := func(name resourceapi.QualifiedName) string {
		if value := d.Attributes[name].StringValue; value != nil {
			return *value
		}
		return ""
	}
	k := kind{shape: text(wire.Type), product: text(wire.ProductName), profile: text(wire.Profile)}
	if memory, has := d.Capacity[wire.Memory]; has {
		k.memory = resource.NewQuantity(memory.Value.Value(), resource.BinarySI).String()
	}
	return k
}
