// Package report is the common face of the benches: a table on the screen, and the same rows as
// bench/out/<name>.json for programs.
//
// A row is a figure that a design or an issue names, with its goal and with what peers reach that were
// measured in the same run. A goal that is missed is a row like any other: no bench fails for it.
package report
