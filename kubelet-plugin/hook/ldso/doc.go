// Package ldso reads and writes the file formats of the GNU dynamic linker: ld.so.cache, ld.so.conf and the part of a
// shared library that has its name.
//
// It is for a process that must create ld.so.cache for another root file system without executing anything from there:
// the linker of that root then finds libraries as if its own ldconfig had run. All functions are pure, and every reader
// accepts malicious input: sizes are bounded, and invalid data is an error.
//
// The formats follow glibc's elf/cache.c, elf/dl-cache.c, elf/dl-cache.h and elf/ldconfig.c.
package ldso
