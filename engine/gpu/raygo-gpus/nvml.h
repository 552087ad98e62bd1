#ifndef RAYGO_NVML_H
#define RAYGO_NVML_H
/* Makes go-nvml's functions those of the library at this path; returns why it cannot. */
const char *raygo_nvml_load(const char *path);
#endif
