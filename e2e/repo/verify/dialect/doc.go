// Package dialect counts words that hide the mechanism: verbs of persons for code, pronouns for nouns, illness for faults. testdata/words.txt
// lists them. testdata/counts.txt has the counts by package and by kind of text. The test fails when a count is higher than there, and lists the
// places, and when it is lower, so that the table is updated and the count never rises again.
//
// `make generate` lowers the counts. After moving code between packages, run `go test -update -moved` in this folder: a count may then rise as far
// as the same count of other packages fell. After a conflict in counts.txt take the version of main and update.
//
//go:generate go test -count=1 -run ^TestDialectOnlyFalls$ . -update
package dialect
