// Package dialect counts words that keep a reader out: verbs of persons for code, riddles for nouns, illness for faults. testdata/words.txt lists
// them. testdata/counts.txt has the counts by package and by kind of text; the test fails when a count is higher than there, and names the places,
// or when it is lower, so that it never rises again.
//
// `make generate` lowers the counts. Where code moved between packages, run in this folder `go test -update -moved`: a count may then rise as far
// as the same count of other packages fell. After a conflict in counts.txt take the version of main and update.
//
//go:generate go test -count=1 -run ^TestDialectOnlyFalls$ . -update
package dialect
