// Package status reports the state of claims to their users: status.devices of the claim (KEP-4817), and Events on the claim and its pods. It
// also reports faults of GPUs as Events on the Node.
//
// Nothing here delays Prepare. A Reporter queues updates and returns; its workers read the claim, compare and write, with retries, until the
// status is written or the claim is deleted. Updates of one claim are written in order; a later one replaces an earlier one. After a restart,
// Reconcile reports the prepared claims again, so that nothing needs to be stored on disk.
//
// Whenever a status is written, its condition Healthy is updated from the current faults. Follow queues updates for claims of devices whose
// health has changed, and reports faults on the Node.
package status
