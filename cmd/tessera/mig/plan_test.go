package mig

import (
	"errors"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// on returns the machine with MIG on where that works, and what there is on its first GPU.
func on(t *testing.T, name string, there ...gpu.Placement) machine {
	t.Helper()
	n := gputest.Node(t, name)
	m := machine{node: n, models: map[string]uint32{}}
	catalogue, err := gputest.FindMachine(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n.GPUs {
		model, err := gputest.FindModel(catalogue.GPUs[i].Model)
		if err != nil {
			t.Fatal(err)
		}
		m.models[n.GPUs[i].Name()] = uint32(model.PCIDevice)
		if n.GPUs[i].TogglesMIG() {
			n.GPUs[i].Mode = gpu.ModeEnabled
		}
	}
	for i, p := range there {
		profile, err := n.GPUs[0].Geometry.Legal(p)
		if err != nil {
			t.Fatal(err)
		}
		n.GPUs[0].Instances = append(n.GPUs[0].Instances, gpu.Instance{GPU: n.GPUs[0].Name(), Placement: p, GI: i, UUID: "MIG-x", Multiprocessors: profile.Multiprocessors})
	}
	return m
}

func at(profile, start, size int) gpu.Placement {
	return gpu.Placement{Profile: profile, Start: start, Size: size}
}

// entries parses the entries of a layout.
func entries(t *testing.T, text string) []Entry {
	t.Helper()
	c, err := Parse([]byte("version: v1\nmig-configs:\n  a:\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	return c.Layouts["a"]
}

func TestPlan(t *testing.T) {
	const enabled = "  - {devices: [0], mig-enabled: true, mig-devices: "
	tests := map[string]struct {
		machine string
		there   []gpu.Placement
		text    string
		change  func(*machine)
		scope   Scope
		want    string
		err     error
	}{
		"fill":                 {machine: "h100x2", text: enabled + "{1g.10gb: 7}}", want: "GPU 0 (gpu-0000-1b-00-0): create 1g.10gb at 0 1g.10gb at 1 1g.10gb at 2 1g.10gb at 3 1g.10gb at 4 1g.10gb at 5 1g.10gb at 6"},
		"already so":           {machine: "h100x2", there: []gpu.Placement{at(14, 0, 2), at(9, 4, 4)}, text: enabled + "{3g.40gb: 1, 2g.20gb: 1}}", want: ""},
		"add":                  {machine: "h100x2", there: []gpu.Placement{at(14, 0, 2)}, text: enabled + "{3g.40gb: 1, 2g.20gb: 1}}", want: "GPU 0 (gpu-0000-1b-00-0): create 3g.40gb at 4"},
		"in the way":           {machine: "h100x2", there: []gpu.Placement{at(19, 3, 1), at(19, 4, 1)}, text: enabled + "{3g.40gb: 1, 1g.10gb: 2}}", want: "GPU 0 (gpu-0000-1b-00-0): destroy 2 create 1g.10gb at 0 1g.10gb at 1 3g.40gb at 4"},
		"elsewhere":            {machine: "h100x2", there: []gpu.Placement{at(9, 0, 4)}, text: enabled + "{3g.40gb: [4]}}", want: "GPU 0 (gpu-0000-1b-00-0): destroy 1 create 3g.40gb at 4"},
		"placed and not":       {machine: "h100x2", there: []gpu.Placement{at(19, 4, 1)}, text: enabled + "{3g.40gb: [4], 1g.10gb: 1}}", want: "GPU 0 (gpu-0000-1b-00-0): destroy 1 create 3g.40gb at 4 1g.10gb at 0"},
		"mode off":             {machine: "h100x2", there: []gpu.Placement{at(19, 0, 1)}, text: "  - {devices: all, mig-enabled: false}", want: "GPU 0 (gpu-0000-1b-00-0): MIG disabled destroy 1\nGPU 1 (gpu-0000-43-00-0): MIG disabled"},
		"mode only":            {machine: "h100x2", text: enabled + "{1g.10gb: 7}}", scope: ModeOnly, change: func(m *machine) { m.node.GPUs[0].Mode = gpu.ModeDisabled }, want: "GPU 0 (gpu-0000-1b-00-0): MIG enabled"},
		"half an instance":     {machine: "h100x2", there: []gpu.Placement{at(19, 6, 1)}, text: enabled + "{1g.10gb: 1}}", change: func(m *machine) { m.node.GPUs[0].Instances[0].CI = gpu.NoCompute }, want: "GPU 0 (gpu-0000-1b-00-0): destroy 1 create 1g.10gb at 6"},
		"no MIG, all":          {machine: "t4x1", text: "  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 1}}", want: ""},
		"no MIG, off":          {machine: "t4x1", text: "  - {devices: [0], mig-enabled: false}", want: ""},
		"no MIG, this one":     {machine: "t4x1", text: enabled + "{1g.10gb: 1}}", err: gpu.ErrUnsupported, want: "Tesla T4 has no MIG"},
		"no such GPU":          {machine: "t4x1", text: "  - {devices: [1], mig-enabled: false}", err: errAny, want: "GPU 1: the node has 1 GPUs"},
		"no such profile":      {machine: "h100x2", text: enabled + "{1g.5gb: 1}}", err: gpu.ErrUnsupported, want: "mig-devices[1g.5gb]: NVIDIA H100 80GB HBM3 has no such profile, only 1g.10gb, 1g.10gb+me"},
		"too many":             {machine: "h100x2", text: enabled + "{1g.10gb: 8}}", err: gpu.ErrOccupied, want: "no order of placements fits"},
		"far too many":         {machine: "h100x2", text: enabled + "{1g.10gb: 1000000000}}", err: gpu.ErrOccupied, want: "no order of placements fits"},
		"no such place":        {machine: "h100x2", text: enabled + "{3g.40gb: [2]}}", err: gpu.ErrUnsupported, want: "mig-devices[3g.40gb] at slice 2"},
		"two at one place":     {machine: "h100x2", text: enabled + "{1g.10gb: [2, 2]}}", err: gpu.ErrOccupied, want: "memory slices [2] are taken"},
		"described twice":      {machine: "h100x2", text: enabled + "{}}\n  - {devices: all, mig-enabled: false}", err: errAny, want: "GPU 0 (gpu-0000-1b-00-0): described by entries 0 and 1"},
		"other model":          {machine: "h100x2", text: "  - {device-filter: 0x20b210de, devices: all, mig-enabled: false}", want: ""},
		"this model":           {machine: "h100x2", text: "  - {device-filter: [0x20b210de, 0x233010DE], devices: [1], mig-enabled: false}", want: "GPU 1 (gpu-0000-43-00-0): MIG disabled"},
		"Ampere, mode":         {machine: "a100-40x2", text: enabled + "{1g.5gb: 1}}", change: func(m *machine) { m.node.GPUs[0].Mode, m.node.GPUs[0].Pending = gpu.ModeDisabled, gpu.ModeDisabled }, err: gpu.ErrUnsupported, want: "MIG enabled needs a reset of the GPU: drain the node, set the mode (nvidia-smi -i GPU-"},
		"Ampere, pending":      {machine: "a100-40x2", text: enabled + "{1g.5gb: 1}}", change: func(m *machine) { m.node.GPUs[0].Mode, m.node.GPUs[0].Pending = gpu.ModeDisabled, gpu.ModeEnabled }, err: gpu.ErrUnsupported, want: "is pending and needs a reset"},
		"lost":                 {machine: "h100x2", text: enabled + "{}}", change: func(m *machine) { m.node.GPUs[0].Lost = true }, err: gpu.ErrLost, want: "does not answer"},
		"claim in the way":     {machine: "h100x2", there: []gpu.Placement{at(9, 4, 4)}, text: enabled + "{1g.10gb: 1}}", change: claims(gpu.Use{Shape: gpu.MIG, Placement: at(9, 4, 4)}), err: gpu.ErrBusy, want: "GPU 0 (gpu-0000-1b-00-0): claim demo/train holds profile 9 at slices 4-7 here: end its pods first"},
		"claim, whole":         {machine: "h100x2", text: enabled + "{1g.10gb: 1}}", change: claims(gpu.Use{Shape: gpu.Whole}), err: gpu.ErrBusy, want: "claim demo/train holds gpu here"},
		"claim beside":         {machine: "h100x2", there: []gpu.Placement{at(19, 0, 1), at(9, 4, 4)}, text: enabled + "{1g.10gb: 1}}", change: claims(gpu.Use{Shape: gpu.MIG, Placement: at(9, 4, 4)}), want: ""},
		"claim's are not ours": {machine: "h100x2", there: []gpu.Placement{at(9, 4, 4)}, text: enabled + "{3g.40gb: 1}}", change: claims(gpu.Use{Shape: gpu.MIG, Placement: at(9, 4, 4)}), err: gpu.ErrBusy, want: "claim demo/train holds"},
	}
	for name, test := range tests {
		m := on(t, test.machine, test.there...)
		if test.change != nil {
			test.change(&m)
		}
		got, err := planned(m, entries(t, test.text), test.scope)
		switch {
		case test.err != nil:
			if err == nil || !errors.Is(err, test.err) && !errors.Is(test.err, errAny) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
			}
		case err != nil || got != test.want:
			t.Errorf("%s: %v\n got %q\nwant %q", name, err, got, test.want)
		}
	}
}

// errAny stands for an error that wraps no sentinel.
var errAny = errors.New("any")

func claims(use gpu.Use) func(*machine) {
	return func(m *machine) {
		m.holds = append(m.holds, hold{claim: "demo/train", Device: gpu.Device{GPU: m.node.GPUs[0].Name(), Use: use}})
	}
}

func planned(m machine, entries []Entry, scope Scope) (string, error) {
	targets, err := m.targets(entries)
	if err != nil {
		return "", err
	}
	changes, err := m.plan(targets, scope)
	var lines []string
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	return strings.Join(lines, "\n"), err
}

func TestExport(t *testing.T) {
	m := on(t, "h100x2", at(14, 0, 2), at(19, 2, 1), at(9, 4, 4))
	m.node.GPUs[1].Mode = gpu.ModeDisabled
	claims(gpu.Use{Shape: gpu.MIG, Placement: at(14, 0, 2)})(&m)
	for form, want := range map[Form]string{
		Counts: `{"1g.10gb":1,"3g.40gb":1}`,
		Starts: `{"1g.10gb":[2],"3g.40gb":[4]}`,
	} {
		c, err := m.export("now", form)
		if err != nil {
			t.Fatal(err)
		}
		got := render(t, c)
		if !strings.Contains(got, want) || !strings.Contains(got, `"devices":[1],"mig-enabled":false`) {
			t.Errorf("form %d: %s", form, got)
		}
		back, err := Parse([]byte(got))
		if err != nil {
			t.Fatalf("form %d: what was exported cannot be read: %v", form, err)
		}
		targets, err := m.targets(back.Layouts["now"])
		if err != nil {
			t.Fatal(err)
		}
		if found := m.deviations(targets, Whole); len(found) > 0 {
			t.Errorf("form %d: what was exported is not in effect: %v", form, found)
		}
	}
	m.node.GPUs[0].Instances[1].Multiprocessors--
	if _, err := m.export("now", Counts); err == nil || !strings.Contains(err.Error(), "the format cannot describe it") {
		t.Errorf("a smaller compute instance: %v", err)
	}
}

func TestDeviations(t *testing.T) {
	m := on(t, "h100x2", at(14, 0, 2))
	m.node.GPUs[1].Lost = true
	for text, want := range map[string]string{
		"  - {devices: [0], mig-enabled: true, mig-devices: {2g.20gb: 1}}":                                                       "GPU 1 (gpu-0000-43-00-0): no entry of the layout describes it",
		"  - {devices: all, mig-enabled: true, mig-devices: {2g.20gb: 1}}":                                                       "GPU 1 (gpu-0000-43-00-0): does not answer",
		"  - {devices: [0], mig-enabled: false}\n  - {devices: [1], mig-enabled: false}":                                         "GPU 0 (gpu-0000-1b-00-0): MIG is enabled, must be disabled\nGPU 1 (gpu-0000-43-00-0): does not answer",
		"  - {devices: [0], mig-enabled: true, mig-devices: {2g.20gb: [2], 1g.10gb: 2}}\n  - {devices: [1], mig-enabled: false}": "GPU 0 (gpu-0000-1b-00-0): holds 2g.20gb at 0, must hold 2 x 1g.10gb, 2g.20gb at 2\nGPU 1 (gpu-0000-43-00-0): does not answer",
	} {
		targets, err := m.targets(entries(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.deviations(targets, Whole), "\n"); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}
