// The notifications of the plugin for NIXL, without NIXL: two ends send each other some of every length while a port of one
// of them goes down.
#include "../../../nixl/notes.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr uint64_t SOON = 100'000'000'000u;
constexpr uint32_t COUNT = 300;

[[noreturn]] void wrong(const char *what) {
    std::printf("expected %s; the last error: %s\n", what, ste_last_error());
    std::exit(1);
}

// From none to several messages.
std::string text(uint32_t end, uint32_t number) {
    const size_t length = number == COUNT / 2 ? 3 * STE_MESSAGE_MAX : (number * 37) % 5000;
    std::string text(length, static_cast<char>('a' + number % 26));
    return number % 7 == 0 ? std::string() : std::to_string(end) + "/" + std::to_string(number) + "/" + text;
}

void converse(ste_engine *engine) {
    shunt::Notes notes;
    shunt::Notes::Received received;
    std::vector<ste_operation *> operations;
    uint32_t end = 0, count = 0;
    if (ste_end(engine, &end) != STE_OK) {
        wrong("a number");
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(SOON);
    for (uint32_t sent = 0; sent < COUNT || count < COUNT || !operations.empty();) {
        if (end == 0 && sent == COUNT / 3 && ste_soft_fault(engine, 0, "down=50ms") != STE_OK) {
            wrong("a fault");
        }
        if (sent < COUNT) {
            const std::string from = "end " + std::to_string(end);
            if (shunt::Notes::send(engine, 1 - end, from, text(end, sent++), operations) != STE_OK) {
                wrong("a notification that begins");
            }
        }
        std::vector<ste_operation *> left;
        for (ste_operation *operation : operations) {
            const int status = ste_test(operation, nullptr);
            if (status == STE_TIMEOUT) {
                left.push_back(operation);
                continue;
            }
            if (status != STE_OK) {
                wrong("a notification that is sent");
            }
            ste_free_operation(operation);
        }
        operations = left;
        if (notes.receive(engine, received) != STE_OK) {
            wrong("an open engine");
        }
        for (const auto &[from, body] : received) {
            if (from != "end " + std::to_string(1 - end) || body != text(1 - end, count++)) {
                wrong("the next notification of the other end");
            }
        }
        received.clear();
        if (std::chrono::steady_clock::now() > until) {
            wrong("all notifications in time");
        }
        // The engines' threads need the processors.
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

} // namespace

int main() {
    ste_options options = STE_OPTIONS(SOON);
    options.nic = STE_NIC_SOFT;
    options.rails = 2;
    options.ends = 2;
    ste_engine *engines[2] = {nullptr, nullptr};
    ste_counters counters{};
    if (ste_open(&options, engines) != STE_OK) {
        wrong("two ends");
    }
    std::thread other(converse, engines[1]);
    converse(engines[0]);
    other.join();
    if (ste_counts(engines[0], &counters) != STE_OK) {
        wrong("counters");
    }
    for (ste_engine *engine : engines) {
        if (ste_close(engine, SOON) != STE_OK) {
            wrong("an end");
        }
    }
    if (counters.failovers == 0) {
        std::printf("not exercised: no lane was left\n");
        return 4;
    }
    std::printf("%u notifications each way, in order\n", COUNT);
    return 0;
}
