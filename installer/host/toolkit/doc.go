// Package toolkit configures a container runtime to read CDI specs. Containerd 2.0 and newer and CRI-O do so by default: their configuration is not changed
// and they are never restarted. Containerd 1.7 gets one drop-in file and is restarted once, if its CRI status reports that CDI is disabled. No state is
// kept, so a crash after any step is equivalent to a restart.
package toolkit
