// Package status tells the users of claims what became of them: status.devices of the claim (KEP-4817)
// and Events on the claim and its pods.
//
// Nothing here is on the path of Prepare. A Reporter takes note and returns; its workers read the claim,
// compare and write, claim by claim in the order in which they were told, until it is written or the
// claim is gone. What is told in between counts, not what was told first. After a restart the state is
// told again by whoever finds the claims prepared, so that nothing needs to be kept on disk.
package status
