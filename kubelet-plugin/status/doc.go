// Package status tells the users of claims what became of them: status.devices of the claim (KEP-4817)
// and Events on the claim and its pods. On the Node it tells of faults of its GPUs.
//
// Nothing here is on the path of Prepare. A Reporter takes note and returns; its workers read the claim,
// compare and write, claim by claim in the order in which they were told, until it is written or the
// claim is gone. What is told in between counts, not what was told first. After a restart the state is
// told again by whoever finds the claims prepared, so that nothing needs to be kept on disk.
//
// Whenever a status is written, the condition Healthy is brought up to date with what is wrong with the GPUs then; Follow has that done
// for the claims of devices whose health changes, and tells of faults on the Node.
package status
