#ifndef TESSERA_NVML_BINDING_H
#define TESSERA_NVML_BINDING_H

// tessera_nvml_bind opens the library and points every forwarded function at it. It returns NULL, or
// why it could not as a text that the caller frees; then nothing is open.
char *tessera_nvml_bind(const char *path);

// tessera_nvml_unbind gives back the given number of handles of the library and points every function
// at nothing again.
void tessera_nvml_unbind(int handles);

#endif
