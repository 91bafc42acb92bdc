// Package prepare turns an allocated claim into usable devices and back.
//
// One pure function plans the preparation (record, view of the hardware and of other claims → ordered steps), another one plans the
// release, and one executor performs the steps in order. A plan contains only the remaining steps, so that planning again after a crash
// continues where the crash was. The package owns the locks of GPUs and claims and declares the ports that it needs. It does not depend on
// NVML, on files of other packages or on Kubernetes.
//
// # Crash safety
//
// Everything below happens while the claim's lock and the locks of its GPUs are held, which the kernel releases with the process. Record and
// hardware are read after the locks were taken.
//
//   - The record in state Preparing lists every placement before anything is created there, and is written only while all of them are free.
//     So a MIG device at a placement of a record was created for its claim, and one at no record's placement is foreign and never destroyed.
//     The one exception is an administrator who creates a MIG device of the same profile at the same memory slices between a crash and the
//     next call: nothing distinguishes it from the claim's, and it is adopted.
//   - While a record is Preparing, no container uses the claim's devices, because kubelet has no answer yet. So it may be completed (by the
//     next Prepare) or released (by Unprepare and Reconcile).
//   - The record in state Prepared contains the MIG devices by ID and UUID. From then on, a MIG device with others at the same placement is foreign,
//     and a missing one is an error: it is never created again under running pods. One that an administrator destroys and creates again has the same ID
//     and UUID, and stays the claim's.
//   - The record in state Unpreparing is written before anything is released. Until it is deleted, no other claim gets the devices.
//   - A record of another boot does not describe hardware: it is deleted. MPS daemons of an earlier boot without a claim are stopped by
//     Reconcile.
//   - The state that claims share on a GPU follows from the records alone: which claim was first and decided the time slice, which claims an
//     MPS daemon serves with which limits, and which claim is the last one and restores the GPU's settings.
//
// If a step of Prepare fails, what was created is released in the same way, through state Unpreparing, and the record is deleted. After a
// timeout the record stays in state Preparing; kubelet's next call resumes it.
package prepare
