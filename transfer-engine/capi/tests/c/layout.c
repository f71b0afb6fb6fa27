/* What the header says of numbers and structures, a line each: held against the library's own. C and C++ alike. */
#include <shunt_transfer.h>
#include <stdio.h>

#define NUMBER(name) printf("%s %lld\n", #name, (long long)(name))
#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))

int main(void) {
    NUMBER(STE_OK);
    NUMBER(STE_PEER_LOST);
    NUMBER(STE_CANCELLED);
    NUMBER(STE_UNCERTAIN);
    NUMBER(STE_UNPROVEN);
    NUMBER(STE_MISSING);
    NUMBER(STE_OUT_OF_REGION);
    NUMBER(STE_RIGHTS);
    NUMBER(STE_REFUSED);
    NUMBER(STE_DESCRIPTION);
    NUMBER(STE_HANDLE);
    NUMBER(STE_TOO_SMALL);
    NUMBER(STE_TIMEOUT);
    NUMBER(STE_CLOSED);
    NUMBER(STE_NICS);
    NUMBER(STE_SYSTEM);
    NUMBER(STE_DEFECT);
    NUMBER(STE_VERSION);
    SIZE(ste_options);
    FIELD(ste_options, bytes);
    FIELD(ste_options, timeout_ns);
    FIELD(ste_options, nic);
    FIELD(ste_options, rails);
    FIELD(ste_options, ends);
    FIELD(ste_options, reserved);
    FIELD(ste_options, soft_gbps);
    SIZE(ste_pages);
    FIELD(ste_pages, indices);
    FIELD(ste_pages, count);
    FIELD(ste_pages, stride);
    FIELD(ste_pages, offset);
    SIZE(ste_result);
    FIELD(ste_result, status);
    FIELD(ste_result, quiet);
    SIZE(ste_event);
    FIELD(ste_event, operation);
    FIELD(ste_event, user);
    FIELD(ste_event, result);
    SIZE(ste_counters);
    FIELD(ste_counters, failovers);
    FIELD(ste_counters, opened);
    FIELD(ste_counters, again);
    ste_options options = STE_OPTIONS(5);
    printf("STE_OPTIONS %zu %llu\n", options.bytes, (unsigned long long)options.timeout_ns);
    return 0;
}
