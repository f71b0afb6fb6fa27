/* What the header says of numbers and structures, a line each: held against the library's own. C and C++ alike. */
#include <shunt_transfer.h>
#include <stdio.h>

#define NUMBER(name) printf("%s %lld\n", #name, (long long)(name))
#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))

int main(void) {
    NUMBER(STE_OK);
    NUMBER(STE_PEER_LOST);
    NUMBER(STE_PEER_LEFT);
    NUMBER(STE_CANCELLED);
    NUMBER(STE_UNCERTAIN);
    NUMBER(STE_UNPROVEN);
    NUMBER(STE_DENIED);
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
    FIELD(ste_options, transport);
    FIELD(ste_options, soft_gbps);
    FIELD(ste_options, provider);
    FIELD(ste_options, addresses);
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
    SIZE(ste_share);
    FIELD(ste_share, peer);
    FIELD(ste_share, reserved);
    FIELD(ste_share, to);
    FIELD(ste_share, to_offset);
    FIELD(ste_share, from_offset);
    FIELD(ste_share, bytes);
    FIELD(ste_share, imm);
    SIZE(ste_other);
    FIELD(ste_other, peer);
    FIELD(ste_other, reserved);
    FIELD(ste_other, target);
    SIZE(ste_change);
    FIELD(ste_change, peer);
    FIELD(ste_change, joined);
    printf("STE_MESSAGE_MAX %zu\n", STE_MESSAGE_MAX);
    ste_options options = STE_OPTIONS(5);
    printf("STE_OPTIONS %zu %llu\n", options.bytes, (unsigned long long)options.timeout_ns);
    return 0;
}
