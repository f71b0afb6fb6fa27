// The messages of the plugin for NIXL, without NIXL: two ends send each other messages of every length while a port of
// one of them goes down.
#include "../../../nixl/mailbox.h"

#include <chrono>
#include <cstdio>
#include <thread>

namespace {

constexpr uint64_t SOON = 100'000'000'000u;
constexpr uint32_t COUNT = 600;

[[noreturn]] void wrong(const char *what) {
    std::printf("expected %s; the last error: %s\n", what, ste_last_error());
    std::exit(1);
}

// From none to several slots.
std::string text(uint32_t end, uint32_t number) {
    std::string text((number * 37) % 5000, static_cast<char>('a' + number % 26));
    return number % 7 == 0 ? std::string() : std::to_string(end) + "/" + std::to_string(number) + "/" + text;
}

void converse(ste_engine *engine) {
    shunt::Mailbox mailbox;
    shunt::Mailbox::Messages messages;
    if (!mailbox.open(engine, SOON)) {
        wrong("a mailbox");
    }
    const uint32_t end = mailbox.end(), peer = 1 - end;
    uint32_t received = 0;
    uint64_t last = 0;
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(SOON);
    for (uint32_t sent = 0; sent < COUNT || received < COUNT || !mailbox.is_sent(peer, last);) {
        if (end == 0 && sent == COUNT / 3 && ste_soft_fault(engine, 0, "down=50ms") != STE_OK) {
            wrong("a fault");
        }
        if (sent < COUNT) {
            last = mailbox.send(peer, "end " + std::to_string(end), text(end, sent++));
        }
        mailbox.progress(messages);
        for (const auto &[from, message] : messages) {
            if (from != "end " + std::to_string(peer) || message != text(peer, received++)) {
                wrong("the next message of the other end");
            }
        }
        messages.clear();
        if (mailbox.is_lost(peer) || std::chrono::steady_clock::now() > until) {
            wrong("a peer that is there");
        }
    }
    // Neither ends before the other is done.
    if (ste_exchange(engine, nullptr, 0, nullptr, 0, nullptr, SOON) != STE_OK) {
        wrong("an exchange");
    }
    ste_counters counters;
    if (ste_counts(engine, &counters) != STE_OK || ste_close(engine, SOON) != STE_OK) {
        wrong("an end");
    }
    mailbox.free(true);
    if (end == 0 && counters.failovers == 0) {
        std::printf("not exercised: no lane was left\n");
        std::exit(4);
    }
}

} // namespace

int main() {
    ste_options options = STE_OPTIONS(SOON);
    options.nic = STE_NIC_SOFT;
    options.ends = 2;
    ste_engine *engines[2] = {nullptr, nullptr};
    if (ste_open(&options, engines) != STE_OK) {
        wrong("two ends");
    }
    std::thread first(converse, engines[0]), second(converse, engines[1]);
    first.join();
    second.join();
    std::printf("%u messages each way, in order\n", COUNT);
    return 0;
}
