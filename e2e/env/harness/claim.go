package harness

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

// Change modifies a claim before it is created or, for the status, before the status is written.
type Change func(*resourceapi.ResourceClaim)

// Claim creates a claim that holds the devices of the host, in the state in which the scheduler leaves it. The request
// of the n-th device is named r<n>, from 0.
func (h *Host) Claim(ctx context.Context, name string, devices []gpu.Device, changes ...Change) (*drapb.Claim, error) {
	claims := h.plane.Client.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	object := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: h.Name + "-" + name}}
	allocation := &resourceapi.AllocationResult{}
	for i, device := range devices {
		request := fmt.Sprintf("r%d", i)
		object.Spec.Devices.Requests = append(object.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name:    request,
			Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: Driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		})
		allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: request, Driver: Driver, Pool: wire.PoolName(h.Name, Driver), Device: wire.DeviceName(device),
		})
	}
	object.Status.Allocation = allocation
	for _, change := range changes {
		change(object)
	}
	status := object.Status
	created, err := claims.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	created.Status = status
	if created, err = claims.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	return &drapb.Claim{Namespace: created.Namespace, Name: created.Name, Uid: string(created.UID)}, nil
}

// Whole returns the whole GPU at the index.
func (h *Host) Whole(index int) gpu.Device {
	return gpu.Device{GPU: h.Hardware.GPUs[index].Name(), Use: gpu.Use{Shape: gpu.Whole}}
}

// Slice returns the MIG placement of the profile at the memory slice of the GPU at the index.
func (h *Host) Slice(index, profile, start int) (gpu.Device, error) {
	g := h.Hardware.GPUs[index]
	for _, p := range g.Geometry.Placements(profile) {
		if p.Start == start {
			return gpu.Device{GPU: g.Name(), Use: gpu.Use{Shape: gpu.MIG, Placement: p}}, nil
		}
	}
	return gpu.Device{}, fmt.Errorf("no placement of profile %d at %d on GPU %d", profile, start, index)
}

// Selector selects the host's ResourceSlices.
func (h *Host) Selector() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorNodeName: h.Name, resourceapi.ResourceSliceSelectorDriver: Driver,
	}.String()}
}

// Pool returns the ResourceSlices of the host's pool. An incomplete pool is an error.
func (h *Host) Pool(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	list, err := h.plane.Client.ResourceV1().ResourceSlices().List(ctx, h.Selector())
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("%s has no slices", h.Name)
	}
	for _, s := range list.Items {
		if pool := s.Spec.Pool; pool.ResourceSliceCount != int64(len(list.Items)) || pool.Generation != list.Items[0].Spec.Pool.Generation {
			return nil, fmt.Errorf("%d of %d slices, generation %d", len(list.Items), pool.ResourceSliceCount, pool.Generation)
		}
	}
	return list.Items, nil
}
