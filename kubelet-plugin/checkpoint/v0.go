package checkpoint

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// recordV0 is the format before the first release: without envelope, checksum and instances. It is read and never
// written.
type recordV0 struct {
	Version int    `json:"version"`
	UID     string `json:"uid"`
	// Claim is namespace/name.
	Claim   string     `json:"claim"`
	Phase   string     `json:"phase"`
	BootID  string     `json:"bootID"`
	Devices []deviceV0 `json:"devices"`
}

type deviceV0 struct {
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	GPU     string `json:"gpu"`
	Shape   string `json:"shape"`
	// Placement is profile id, start and size; empty except for MIG devices.
	Placement []int `json:"placement"`
}

func decodeV0(data []byte) (prepare.Record, error) {
	var v recordV0
	if err := json.Unmarshal(data, &v); err != nil {
		return prepare.Record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if v.Version != 0 {
		return prepare.Record{}, fmt.Errorf("%w: it has no checksum", errDamaged)
	}
	namespace, name, _ := strings.Cut(v.Claim, "/")
	next := recordV1{UID: v.UID, Namespace: namespace, Name: name, State: v.Phase, BootID: v.BootID}
	for _, d := range v.Devices {
		device := deviceV1{Request: d.Request, Pool: d.Pool, Device: d.Device, GPU: d.GPU, Shape: d.Shape}
		if len(d.Placement) == 3 {
			device.Placement = &placementV1{Profile: d.Placement[0], Start: d.Placement[1], Size: d.Placement[2]}
		}
		next.Devices = append(next.Devices, device)
	}
	return next.record()
}
