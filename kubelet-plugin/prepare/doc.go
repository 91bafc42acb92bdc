// Package prepare turns an allocated claim into usable devices and back.
//
// A pure function plans (record, view of the hardware and of other claims → ordered steps), another
// one plans the way back, and one executor performs the steps in that order. A plan holds only what is
// left to do, so that planning again after a crash continues where the crash was. The package owns
// the locks of GPUs and claims and declares the ports it needs; it knows neither NVML nor files of
// others nor Kubernetes.
//
// # Why a crash does no harm
//
// Everything below happens while the claim's lock and the locks of its GPUs are held, which end with
// their process; record and hardware are read after the locks were taken.
//
//   - The record Preparing names every placement before anything is made there, and is only written
//     when nothing lies there. So what lies at a placement of a record was made for its claim, and
//     what lies at no record's placement was made by others and is never destroyed. The one exception
//     is an administrator who makes an instance of the same profile at the very same slices between
//     a crash and the next call: nothing tells it from ours, and it is adopted.
//   - While a record is Preparing nobody uses the claim's devices: kubelet has no answer yet. So it may
//     be finished (the next Prepare does) or taken back (Unprepare and Reconcile do).
//   - The record Prepared knows the instances by id and UUID. From then on another instance at the same
//     placement is somebody else's, and a missing one is an error, never made again under running pods.
//   - The record Unpreparing is written before anything is taken away. Until it is deleted nobody else
//     gets the devices.
//   - A record of another boot says nothing about hardware: it is dropped. MPS daemons that a boot left
//     without a claim are ended by Reconcile.
//   - What claims share on a GPU follows from the records alone: who came first and so decided about the
//     time slice, whom a daemon serves and with what limits, and who is the last to go and gives the GPU
//     its own ways back.
//
// When a step of Prepare fails, what was made is taken back the same way, by way of Unpreparing, and
// the record goes. Only when the time ran out it stays Preparing for the next call.
package prepare
