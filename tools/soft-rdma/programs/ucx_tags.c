/* Two processes that send each other tagged messages by UCP and compare each byte.
 *
 *   ucx_tags SECONDS -p PORT          one end
 *   ucx_tags SECONDS -p PORT HOST     the other, which says when it is over
 *
 * Messages of all sizes, so that UCX uses inline data, copies, buffers of the caller's and rendezvous. Ends with status 0
 * if all came as they were sent, 1 if one did not, 2 if UCX said no. */
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

enum { WINDOW = 8, LARGEST = 256 << 10, ENDS = 0, HEADER = 8 };

static const size_t sizes[] = { 8, 40, 200, 1000, 4096, 8200, 30000, 65536, 150001, LARGEST };

/* The other end may leave. */
static int is_over;

static void good(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: expected OK, got %s\n", what, ucs_status_string(status));
        exit(2);
    }
}

static void must(int is, const char *what)
{
    if (!is) {
        perror(what);
        exit(2);
    }
}

static uint8_t byte_at(uint64_t number, size_t at)
{
    return (uint8_t)((number * 2654435761u + at * 31 + (at >> 8)) >> 3);
}

static void fill(uint8_t *to, size_t size, uint64_t number)
{
    memcpy(to, &number, HEADER);
    for (size_t at = HEADER; at < size; at++)
        to[at] = byte_at(number, at);
}

static int holds(const uint8_t *from, size_t size, uint64_t number)
{
    if (memcmp(from, &number, HEADER) != 0)
        return 0;
    for (size_t at = HEADER; at < size; at++)
        if (from[at] != byte_at(number, at))
            return 0;
    return 1;
}

static ucs_status_t end_of(ucp_worker_h worker, ucs_status_ptr_t request)
{
    ucs_status_t status = UCS_PTR_STATUS(request);
    if (UCS_PTR_IS_PTR(request)) {
        do {
            ucp_worker_progress(worker);
            status = ucp_request_check_status(request);
        } while (status == UCS_INPROGRESS);
        ucp_request_free(request);
    }
    return status;
}

static int meet(const char *host, const char *port)
{
    struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
    hints.ai_flags = host ? 0 : AI_PASSIVE;
    must(getaddrinfo(host, port, &hints, &found) == 0, "getaddrinfo");
    int to = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (host) {
        must(connect(to, found->ai_addr, found->ai_addrlen) == 0, "connect");
        return to;
    }
    setsockopt(to, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    must(bind(to, found->ai_addr, found->ai_addrlen) == 0 && listen(to, 1) == 0, "listen");
    int one = accept(to, NULL, NULL);
    must(one >= 0, "accept");
    return one;
}

static void failed(void *of, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)of, (void)endpoint;
    if (!is_over)
        good(status, "the endpoint");
}

static ucp_ep_h connect_to(ucp_worker_h worker, int by)
{
    ucp_address_t *own;
    size_t length, theirs;
    good(ucp_worker_get_address(worker, &own, &length), "ucp_worker_get_address");
    must(send(by, &length, sizeof length, 0) == sizeof length, "send");
    must(send(by, own, length, 0) == (ssize_t)length, "send");
    must(recv(by, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs, "recv");
    void *address = malloc(theirs);
    must(address && recv(by, address, theirs, MSG_WAITALL) == (ssize_t)theirs, "recv");
    ucp_ep_params_t there = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        /* Otherwise UCX aborts the process. */
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler.cb = failed,
    };
    ucp_ep_h endpoint;
    good(ucp_ep_create(worker, &there, &endpoint), "ucp_ep_create");
    ucp_worker_release_address(worker, own);
    free(address);
    return endpoint;
}

/* Sends and receives a window of messages at once: how many came otherwise than they were sent. */
static unsigned exchange(ucp_worker_h worker, ucp_ep_h to, uint8_t *buffers[2][WINDOW], uint64_t first, uint64_t mine,
                         uint64_t theirs)
{
    const ucp_request_param_t plain = { 0 };
    ucs_status_ptr_t sends[WINDOW], receives[WINDOW];
    unsigned wrong = 0;
    for (unsigned n = 0; n < WINDOW; n++) {
        size_t size = sizes[(first + n) % (sizeof sizes / sizeof *sizes)];
        memset(buffers[1][n], 0xee, size);
        fill(buffers[0][n], size, mine + first + n);
        receives[n] = ucp_tag_recv_nbx(worker, buffers[1][n], size, first + n, UINT64_MAX, &plain);
        sends[n] = ucp_tag_send_nbx(to, buffers[0][n], size, first + n, &plain);
    }
    for (unsigned n = 0; n < WINDOW; n++) {
        size_t size = sizes[(first + n) % (sizeof sizes / sizeof *sizes)];
        good(end_of(worker, sends[n]), "ucp_tag_send_nbx");
        good(end_of(worker, receives[n]), "ucp_tag_recv_nbx");
        wrong += !holds(buffers[1][n], size, theirs + first + n);
    }
    return wrong;
}

int main(int count, char **args)
{
    must(count == 4 || count == 5, "usage: ucx_tags SECONDS -p PORT [HOST]");
    const char *host = count == 5 ? args[4] : NULL;
    ucp_params_t wanted = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG };
    ucp_worker_params_t mode = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE };
    ucp_context_h context;
    ucp_worker_h worker;
    good(ucp_init(&wanted, NULL, &context), "ucp_init");
    good(ucp_worker_create(context, &mode, &worker), "ucp_worker_create");
    int by = meet(host, args[3]);
    ucp_ep_h there = connect_to(worker, by);
    uint8_t *buffers[2][WINDOW];
    for (unsigned n = 0; n < 2 * WINDOW; n++)
        must((buffers[n / WINDOW][n % WINDOW] = malloc(LARGEST)) != NULL, "malloc");

    uint64_t number = 1, mine = (uint64_t)(host != NULL) << 40, theirs = (uint64_t)(host == NULL) << 40;
    time_t until = time(NULL) + atoi(args[1]);
    const ucp_request_param_t plain = { 0 };
    unsigned wrong = 0;
    for (uint8_t more = 1; more; number += WINDOW) {
        wrong += exchange(worker, there, buffers, number, mine, theirs);
        more = time(NULL) < until;
        ucs_status_ptr_t says = host ? ucp_tag_send_nbx(there, &more, 1, ENDS, &plain)
                                     : ucp_tag_recv_nbx(worker, &more, 1, ENDS, UINT64_MAX, &plain);
        good(end_of(worker, says), "the last message");
    }
    printf("%llu messages each way, %u wrong\n", (unsigned long long)number - 1, wrong);
    fflush(stdout);

    is_over = 1;
    good(end_of(worker, ucp_ep_close_nb(there, UCP_EP_CLOSE_MODE_FLUSH)), "ucp_ep_close_nb");
    /* Who leaves first waits for the other, whose last messages may need an answer. */
    shutdown(by, SHUT_WR);
    uint8_t rest;
    while (recv(by, &rest, 1, MSG_DONTWAIT) != 0)
        ucp_worker_progress(worker);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return wrong != 0;
}
