/* For programs without device code that ask for the host's part alone. */
#ifndef SHUNT_NVSHMEM_HOST_H
#define SHUNT_NVSHMEM_HOST_H

#include "nvshmem.h"

#endif
