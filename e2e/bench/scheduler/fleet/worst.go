package fleet

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
)

// worstRequests returns the most requests with the most alternatives that the API allows, for MIG devices of which a node
// has three places on each of its GPUs, so that it cannot serve all of them. No two alternatives accept the same devices, and
// no two numbers give the same requests.
func worstRequests(number int) []resourceapi.DeviceRequest {
	const class = "mig-2g.20gb.tessera.dev"
	var requests []resourceapi.DeviceRequest
	for r := range resourceapi.DeviceRequestsMaxSize {
		request := resourceapi.DeviceRequest{Name: fmt.Sprintf("r%d", r)}
		for i := range resourceapi.FirstAvailableDeviceRequestMaxSize {
			request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{
				Name: fmt.Sprintf("a%d", i), DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
					`!(device.attributes[%q].index in [%d, %d])`, Driver, (r+i+number)%8, (r+i+number+1+(r+number)%3)%8)}}},
			})
		}
		request.FirstAvailable[0].Selectors[0].CEL.Expression += fmt.Sprintf(" || %d < 0", number)
		requests = append(requests, request)
	}
	return requests
}
