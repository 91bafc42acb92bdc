// Package mps runs MPS control daemons, each in its own pod, so that a daemon outlives the agent.
//
// Pods is the agent's side. It manages the pods and writes a daemon's configuration into the daemon's folder. Supervisor
// is the other side, the program of the pod: it runs the driver's nvidia-cuda-mps-control with the configured limits,
// applies changes and restarts the daemon after a failure. The two communicate through the folder only:
//
//	config.json  the configuration that the agent requests; without it no daemon runs
//	state.json   the configuration in effect, and the last error
//	lock         byte 0 is locked while any process of the daemon lives, byte 1 while state.json describes
//	             a serving daemon
//	pipe, log    CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY
//	lib          links to the driver's libraries
//
// The locks are open-file-description locks (fcntl(2), F_OFD_SETLK). The control daemon inherits the open file, so byte
// 0 is free only after supervisor and daemon have ended, in whatever way. Both sides poll the folder several times a
// second instead of using notifications: a poll costs two system calls, and nothing needs to be set up again after a
// restart.
package mps
