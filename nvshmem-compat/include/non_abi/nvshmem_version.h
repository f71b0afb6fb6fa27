/* The versions, where programs for NVSHMEM look for them. */
#ifndef SHUNT_NVSHMEM_VERSION_H
#define SHUNT_NVSHMEM_VERSION_H

#include "../shunt/types.h"

#endif
