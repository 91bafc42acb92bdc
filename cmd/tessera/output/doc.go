// Package output writes what the verbs of the CLI found: text on a screen, which may have colours and a
// width, tables, and JSON.
package output
