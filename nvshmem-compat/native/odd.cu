// A kernel that asks for what cannot be: a put from an address that no other PE has. Its call returns; the PE tells.
#include "../programs/program.h"
#include <shunt_nvshmem.h>

__global__ void family(void *memory, unsigned *wrong) {
    const Tally tally{wrong};
    int here = 1;
    nvshmem_int_put((int *)memory, &here, 1, next_pe());
    const unsigned long long fault = shunt_nvshmem_device_fault();
    tally.want(fault >> 32 == SHUNT_BAD_ADDRESS && (int)fault == next_pe());
}

int main() { return program("odd", family); }
