// Package report is the common output of the benches: a table on the screen, and the same rows as
// bench/out/<name>.json for programs.
//
// A row is a figure of a design or an issue, with its goal and the figures of peers that were measured
// in the same run. A missed goal is a row like any other: no bench fails for it.
package report
