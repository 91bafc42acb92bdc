package agent

import (
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
)

func TestWholeGPU(t *testing.T) {
	n := newNode(t, "h100x2")
	a, k := n.run()
	a.waitReady()
	claim := n.claim("whole", []gpu.Device{n.whole(1)})
	devices := k.mustPrepare(claim)
	t.Log(devices)
	k.mustUnprepare(claim)
	a.terminate()
}
