// Package command has what all calls of programs on the host have in common.
package command

import "time"

// OutputDelay is exec.Cmd.WaitDelay of a program whose output is read: how long its output may stay open after it has ended. A descendant can keep it open
// without end. On a busy machine, so does for seconds a process that is being started at the same time, until it executes its own program: a program that
// succeeded must not fail for that.
const OutputDelay = 30 * time.Second
