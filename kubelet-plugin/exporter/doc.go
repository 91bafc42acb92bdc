// Package exporter exports metrics of the node's GPUs, and which pods hold them, to Prometheus.
//
// The hardware is read when it is scraped, at most once per second, each GPU separately: a GPU that hangs only lacks its own series and does
// not delay later scrapes. kubelet's podresources API lists which container uses which claim, the agent's records list which claim holds which
// device.
//
// # Labels
//
// Each series of a device has node, gpu, uuid, product, shape, and namespace, pod, container, claim; those of a MIG device also have profile.
// Each of the last four is set if it is the same for all holders of the device, and empty otherwise: a GPU that pods share has one series,
// without a pod name, so that sums are correct. tessera_device_pod_info has one series for each device and pod, for joins on uuid. A GPU with
// MIG devices has no holder, its MIG devices have. Claims with admin access hold no device.
//
// Values that the hardware does not measure have no series. NVML measures no utilization of MIG devices, nor of a GPU with MIG enabled.
package exporter
