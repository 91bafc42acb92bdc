// Package output writes the results of the CLI's verbs: text with colors for a terminal of a certain width, tables, JSON and YAML. It also defines
// errors with an exit status.
package output
