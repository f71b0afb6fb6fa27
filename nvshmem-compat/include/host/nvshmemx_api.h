/* Where programs for NVSHMEM look for a part of it: one header here has all. */
#ifndef SHUNT_NVSHMEM_HOST_EXTENDED_API_H
#define SHUNT_NVSHMEM_HOST_EXTENDED_API_H

#include "../nvshmem.h"

#endif
