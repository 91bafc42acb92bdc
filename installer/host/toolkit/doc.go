// Package toolkit makes a container runtime read CDI specs. Containerd from 2.0 on and CRI-O do so by themselves: nothing of theirs is touched, and they are
// never restarted. Containerd 1.7 gets one drop-in beside its configuration, and is restarted once: only when it runs without CDI, which it is
// asked for and not remembered, so that a crash after any step is the same as a new start.
package toolkit
