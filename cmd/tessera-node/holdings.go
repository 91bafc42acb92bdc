package main

import (
	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// holdings tells the inventory what the records hold.
type holdings struct{ prepare.Records }

// Held returns every device that a claim's record holds.
func (h holdings) Held() ([]gpu.Device, error) {
	records, err := h.List()
	if err != nil {
		return nil, err
	}
	var held []gpu.Device
	for _, record := range records {
		for _, wanted := range record.Wanted {
			if !wanted.Admin {
				held = append(held, wanted.Use)
			}
		}
	}
	return held, nil
}
