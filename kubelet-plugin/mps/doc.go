// Package mps runs MPS control daemons, each in a pod of its own, so that it outlives the agent.
//
// Pods is the agent's side. It keeps the pods and writes what a daemon must do into the daemon's
// folder. Supervisor is the other side, the program of the pod: it runs the driver's
// nvidia-cuda-mps-control under those limits, follows changes and starts again what died. The two meet
// in the folder only:
//
//	config.json  what the agent wants; without it no daemon runs
//	state.json   what is in effect, and what went wrong
//	lock         byte 0 is locked as long as a process of the daemon lives, byte 1 while state.json tells
//	             of a daemon that serves
//	pipe, log    CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY
//	lib          links to the driver's libraries
//
// The locks are open-file-description locks (fcntl(2), F_OFD_SETLK). The control daemon inherits the
// open file, so byte 0 is free only when supervisor and daemon are gone, in whatever way they ended.
// Both sides look at the folder several times a second instead of being told: a look costs two system
// calls, and nothing has to be set up again after a restart.
package mps
