// Package upstream runs kubernetes' own scheduler_perf cases for DRA with the scheduler plugin in the
// in-tree plugin's place. It holds tests only.
package upstream
