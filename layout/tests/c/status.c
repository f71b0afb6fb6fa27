/* A framework's look at a status page. With a file: prints what the page says. Without: sizes and offsets. */
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shunt/status.h"

static int describe(void)
{
#define AT(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(struct shunt_##type, field))
#define SIZE(type) printf("%s %zu\n", #type, sizeof(struct shunt_##type))
    SIZE(status_fault), SIZE(status_summary), SIZE(status_rail), SIZE(status_page);
    AT(status_fault, noticed_unix_ns), AT(status_fault, lasted_ns), AT(status_fault, peer);
    AT(status_fault, channel), AT(status_fault, local_rail), AT(status_fault, remote_rail);
    AT(status_fault, cause), AT(status_fault, syndrome), AT(status_fault, kind);
    AT(status_summary, updated_unix_ns), AT(status_summary, generation), AT(status_summary, trouble_unix_ns);
    AT(status_summary, armed_unix_ns), AT(status_summary, worst_peer), AT(status_summary, rails_down);
    AT(status_summary, channels), AT(status_summary, on_backup), AT(status_summary, switching);
    AT(status_summary, dead), AT(status_summary, failovers), AT(status_summary, switchbacks);
    AT(status_summary, suspicions), AT(status_summary, fences_asked), AT(status_summary, replayed);
    AT(status_summary, placeholders), AT(status_summary, late_tickets), AT(status_summary, ledger_cuts);
    AT(status_summary, pathless), AT(status_summary, uncertain), AT(status_summary, events);
    AT(status_summary, events_lost), AT(status_summary, epoch), AT(status_summary, masked);
    AT(status_summary, standing), AT(status_summary, last_fault);
    AT(status_rail, state), AT(status_rail, downs), AT(status_rail, changed_unix_ns), AT(status_rail, name);
    AT(status_page, magic), AT(status_page, version), AT(status_page, bytes), AT(status_page, pid);
    AT(status_page, pe), AT(status_page, pe_count), AT(status_page, rails), AT(status_page, started_unix_ns);
    AT(status_page, job), AT(status_page, sequence), AT(status_page, summary), AT(status_page, rail);
    AT(status_page, peer), AT(status_page, mask);
    printf("magic %llu\n", (unsigned long long)SHUNT_STATUS_MAGIC);
    printf("version %u\n", SHUNT_STATUS_VERSION);
    printf("rails %d\npeers %d\n", SHUNT_STATUS_RAILS, SHUNT_STATUS_PEERS);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return describe();
    int file = open(argv[1], O_RDONLY);
    struct stat stat;
    if (file < 0 || fstat(file, &stat) != 0 || (size_t)stat.st_size < sizeof(struct shunt_status_page)) {
        fprintf(stderr, "%s: no status page\n", argv[1]);
        return 1;
    }
    const struct shunt_status_page *page = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED || page->magic != SHUNT_STATUS_MAGIC || page->version != SHUNT_STATUS_VERSION) {
        fprintf(stderr, "%s: not a status page of version %u\n", argv[1], SHUNT_STATUS_VERSION);
        return 1;
    }
    struct shunt_status_summary now;
    if (shunt_status_read(page, &now) != 0) {
        fprintf(stderr, "%s: torn\n", argv[1]);
        return 1;
    }
    printf("pe %u of %u rails_down %u worst_peer %u failovers %llu switchbacks %llu generation %llu\n", page->pe,
           page->pe_count, now.rails_down, now.worst_peer, (unsigned long long)now.failovers,
           (unsigned long long)now.switchbacks, (unsigned long long)now.generation);
    return 0;
}
