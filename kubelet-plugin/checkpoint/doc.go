// Package checkpoint keeps the records of claims on disk: one file per claim, <claim uid>.json, which
// is always either the old or the new one, whole.
//
// # Format
//
// A file is {"checksum": "sha256:…", "record": {…}}. The checksum is over the bytes of the record as
// they stand in the file, so that it means the same to every version. This outer shape and the
// record's fields version, readableBy, uid and state never change their meaning.
//
// version is the format that the writer knows, readableBy the oldest format whose readers understand
// enough of the record to finish or undo its claim. A reader of format R reads a record with
// readableBy <= R, whatever its version, and converts those of older formats. A writer of format N
// keeps readableBy at N-1 or lower: during an upgrade both read and write the same records, and a
// downgrade by one version finds its claims.
//
// Fields that a reader does not know survive when it writes the record again, and so do version and
// readableBy of a newer writer. A newer format must therefore live with old and new values side by
// side: what an older agent changes is the state, what it drops is a device, with all its fields.
//
// # What cannot be read
//
// A file that is damaged is renamed to <claim uid>.json.unreadable-<n> and reported, once; the agent
// works on, and prepare.Unreadable tells that the claim was ours, and its name if that can be made out. A record of a newer format that
// says we cannot read it is no damage: it stays in its place, is reported, and its claim is refused.
//
// # Health
//
// What is remembered of the GPUs' health is one more file, health.json in a folder of its own, with the same envelope, header and promises. A
// fault is known by GPU, placement, signal and number: what a newer agent says of it survives as long as the fault is remembered.
package checkpoint
