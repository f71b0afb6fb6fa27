/* Where programs for NVSHMEM look for a part of it: one header here has all. */
#ifndef SHUNT_NVSHMEM_DEVICE_EXTENDED_DEFINES_H
#define SHUNT_NVSHMEM_DEVICE_EXTENDED_DEFINES_H

#include "../nvshmem.h"

#endif
