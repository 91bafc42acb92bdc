package fit

import (
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// Describe returns, for people, what the choice takes and what it costs the node: the devices, the lost part of the
// node's value (Kind.Value over Unit), the number of idle GPUs that it opens, and the link quality of a set of whole
// GPUs. The choice must be a result of Choose for the node and the requirements.
func Describe(n *Node, req *Requirements, c Choice) string {
	var parts []string
	for r, pick := range c.Picks {
		a := &req.Requests[r].Alternatives[pick.Alternative]
		name := req.Requests[r].Name
		if a.Name != "" {
			name += "/" + a.Name
		}
		var devices []string
		for _, device := range pick.Devices {
			devices = append(devices, deviceName(n, device))
		}
		parts = append(parts, name+": "+strings.Join(devices, ", "))
	}
	return strings.Join(parts, "; ") + "; " + describeCost(n, req, c)
}

// deviceName returns a description of the device.
func deviceName(n *Node, device int) string {
	d := &n.Devices[device]
	g := &n.GPUs[d.GPU]
	switch d.Use.Shape {
	case gpu.MIG:
		p, _ := g.Kind.Geometry.Profile(d.Use.Placement.Profile)
		return fmt.Sprintf("%s at memory slice %d of %s", p.Name, d.Use.Placement.Start, g.Name)
	case gpu.Whole:
		return g.Name
	case gpu.TimeShare, gpu.MPS, gpu.VFIO, gpu.Monitor, gpu.None:
	}
	return fmt.Sprintf("%s as %v", g.Name, d.Use.Shape)
}

// describeCost returns what the choice costs.
func describeCost(n *Node, req *Requirements, c Choice) string {
	s := newNodeView(n, nil)
	o := s.outcomeOfPicks(req, c.Picks)
	worth := int64(0)
	for i := range s.gpus {
		worth += int64(s.gpus[i].row.value)
	}
	text := fmt.Sprintf("costs %.1f of %.1f, opens %s", float64(o.loss)/Unit, float64(worth)/Unit, plural(o.opened, "idle GPU"))
	for r, pick := range c.Picks {
		if req.Requests[r].Alternatives[pick.Alternative].isTeam(n.Devices) {
			return text + fmt.Sprintf(", link quality %.2f", float64(o.quality)/topology.PerfectQuality)
		}
	}
	return text
}
