package prepare

import (
	"errors"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/params"
)

func TestPassthrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "t4x1")
	w.sandbox = true
	p := w.process(t, nil)
	c := claim("a", w.wanted(0, gpu.Use{Shape: gpu.VFIO}))
	name := c.Wanted[0].Use.GPU
	answers := mustPrepare(t, p, c)
	if len(answers) != 1 || answers[0].IOMMUGroup != "group of "+name {
		t.Fatalf("answers: %+v", answers)
	}
	if _, err := p.Prepare(quiet(t), claim("b", w.wanted(0, gpu.Use{Shape: gpu.VFIO}))); err == nil {
		t.Error("a second virtual machine got the GPU")
	}
	// Another program unbound it from vfio-pci: the next pod of the claim gets it all the same.
	w.gpus[name].bound = false
	if again := mustPrepare(t, p, c); again[0].IOMMUGroup == "" || !w.gpus[name].bound {
		t.Errorf("bound again: %t, %+v", w.gpus[name].bound, again)
	}
	// While the virtual machine runs, the claim keeps its record, and no other claim gets the GPU.
	w.busy[name] = true
	if err := p.Unprepare(quiet(t), c.Ref); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("unprepare while it is used: %v", err)
	}
	if _, err := p.Prepare(quiet(t), claim("b", w.wanted(0, gpu.Use{Shape: gpu.VFIO}))); err == nil {
		t.Error("a second virtual machine got the GPU while the first still has it")
	}
	w.busy[name] = false
	mustUnprepare(t, p, c)
	clean(t, w)
}

func TestPassthroughRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "t4x1")
	w.sandbox = true
	p := w.process(t, nil)
	watching, extra := w.wanted(0, gpu.Use{Shape: gpu.VFIO}), w.wanted(0, gpu.Use{Shape: gpu.VFIO})
	watching.Admin = true
	extra.Settings.Extras = params.ExtrasOf(params.GDS)
	for name, wanted := range map[string]Wanted{"an administrator's": watching, "with a device of the driver": extra} {
		if _, err := p.Prepare(quiet(t), claim("a", wanted)); !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	clean(t, w)
}
