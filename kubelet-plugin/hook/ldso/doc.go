// Package ldso speaks the file formats of the GNU dynamic linker: ld.so.cache, ld.so.conf and the part
// of a shared library that names it.
//
// It is written for a process that must make ld.so.cache for a foreign root file system without
// running anything from there: the linker of that root then finds libraries as if its own ldconfig
// had run. Everything is pure, and every reader takes what an attacker wrote: sizes are bounded, and
// what makes no sense is an error.
//
// The formats follow glibc's elf/cache.c, elf/dl-cache.c, elf/dl-cache.h and elf/ldconfig.c.
package ldso
