// Package exporter tells Prometheus what the node's GPUs measure and which pods hold them.
//
// The hardware is read when somebody scrapes, at most once per second however many do, each GPU by
// itself: one that hangs leaves its own series out and holds nobody up. Which container uses which
// claim comes from kubelet (podresources), which claim holds which device from the agent's records.
//
// # Labels
//
// Every series of a device has node, gpu, uuid, product, shape, and namespace, pod, container, claim;
// those of a MIG device also have profile. Each of the last four is set where it is the same for all
// that hold the device, and empty otherwise: a GPU that pods share has one series, so that sums are
// right, and no pod to its name. tessera_device_pod_info has one series for every device and pod, for
// joins on uuid. A GPU that is carved is held by nobody, its MIG devices are. Claims with admin access
// hold nothing.
//
// What the hardware does not measure has no series. NVML measures no utilization of MIG devices, nor
// of a GPU that is carved into some.
package exporter
