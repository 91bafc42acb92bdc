// What the files of the probe share. The probe runs in a container and tells, in one line of JSON per
// question, what the container was given. It is linked to libc only: the driver's libraries are found by
// the dynamic loader at run time, as any CUDA program finds them, and never through LD_LIBRARY_PATH.
#ifndef TESSERA_PROBE_H
#define TESSERA_PROBE_H

// Each question prints its answer to stdout and returns the exit status of the process.
int devices(void);
int isolation(int argc, char **argv);
int vectoradd(void);
int share(int argc, char **argv);
int vfio(void);

// library opens a shared library or explains on stderr why it cannot, and returns NULL.
void *library(const char *name);

// symbol returns the address of a function, or NULL after it has said on stderr what is missing.
void *symbol(void *library, const char *name);

// text prints s as a JSON string with its quotes.
void text(const char *s);

#endif
