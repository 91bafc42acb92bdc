// Package checkpoint persists the records of claims: one file per claim, <claim uid>.json, which always has the complete
// old or the complete new record.
//
// # Format
//
// A file is {"checksum": "sha256:…", "record": {…}}. The checksum is over the bytes of the record as they are in the
// file, so that it has the same meaning in every version. This outer structure and the record's fields version,
// readableBy, uid and state never change their meaning.
//
// version is the writer's format, readableBy the oldest format whose readers understand enough of the record to finish
// or undo its claim. A reader of format R reads a record with readableBy <= R, whatever its version, and converts those
// of older formats. A writer of format N keeps readableBy at N-1 or lower: during an upgrade both versions read and
// write the same records, and after a downgrade by one version the agent finds its claims.
//
// Unknown fields are kept when a reader writes the record again, and so are version and readableBy of a newer writer. A
// newer format must therefore accept records that mix old and new values: an older agent changes the state, and removes
// devices with all their fields.
//
// # Unreadable files
//
// A damaged file is renamed to <claim uid>.json.unreadable-<n> and reported, once; the agent continues.
// prepare.UnreadableRecord means that the claim had a record, and has the claim's name if it can be recovered. A record
// of a newer format that this version cannot read is not damaged: it stays in its place, is reported, and its claim is
// rejected.
//
// # Health
//
// The state of the GPUs' health is one more file, health.json in its own folder, with the same envelope, header and
// guarantees. A fault is identified by GPU, placement, signal and XID: unknown fields of a newer agent are kept as long
// as the fault is.
package checkpoint
