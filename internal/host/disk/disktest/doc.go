// Package disktest injects faults and power failures into what a program writes through the port disk.FileSystem. It is for tests.
//
// A Disk writes to a real folder. TryFaults fails each call of an operation once, or all calls from one on, with an error of the kernel. CheckPowerLoss
// makes every state in which a power failure may leave the folder after each call, as strictly as POSIX allows it (see package disk), and compares it
// with the states that the program had between its last return and the failure. MutateSyncs drops one sync at a time and expects CheckPowerLoss to
// fail, so that no sync is without a test.
package disktest
