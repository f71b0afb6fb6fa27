// Messages between the ends of a job: slots in the receiver's memory, written with an immediate for each.
//
// An end has a row of slots for every other one. Slot i of a row carries immediate i, so messages keep their order
// though writes have none. Each slot that was read is given back by a bare immediate. Longer messages take several
// slots. Nothing here waits: `progress` does what can be done now.
#pragma once

#include <shunt_transfer.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace shunt {

class Mailbox {
public:
    using Messages = std::vector<std::pair<std::string, std::string>>;

    // All ends call it. False: `ste_last_error` says why.
    bool open(ste_engine *engine, uint64_t timeout_ns) {
        engine_ = engine;
        if (ste_end(engine, &end_) != STE_OK || ste_ends(engine, &ends_) != STE_OK) {
            return false;
        }
        const size_t bytes = size_t{ends_} * SLOTS * SLOT;
        in_ = static_cast<uint8_t *>(std::calloc(1, bytes));
        out_ = static_cast<uint8_t *>(std::calloc(1, bytes));
        std::vector<uint8_t> all(size_t{ends_} * STE_DESCRIPTION_MAX);
        std::vector<size_t> sizes(ends_);
        uint8_t mine[STE_DESCRIPTION_MAX];
        size_t size = sizeof mine;
        if (in_ == nullptr || out_ == nullptr || ste_register(engine, in_, bytes, STE_WRITE, &in_region_) != STE_OK ||
            ste_register(engine, out_, bytes, STE_LOCAL, &out_region_) != STE_OK ||
            ste_describe(in_region_, mine, &size) != STE_OK ||
            ste_exchange(engine, mine, size, all.data(), STE_DESCRIPTION_MAX, sizes.data(), timeout_ns) != STE_OK) {
            return false;
        }
        peers_.resize(ends_);
        for (uint32_t peer = 0; peer < ends_; peer++) {
            Peer &of = peers_[peer];
            const uint8_t *description = all.data() + size_t{peer} * STE_DESCRIPTION_MAX;
            if (peer != end_ && (ste_import(engine, description, sizes[peer], &of.target) != STE_OK ||
                                 !expect(peer, 0, &of.arrived) || !expect(peer, CREDIT, &of.credit))) {
                return false;
            }
        }
        return true;
    }

    // After the engine is closed. `is_closed` false: a NIC may still touch the memory, which is kept.
    void free(bool is_closed) {
        for (Peer &peer : peers_) {
            ste_free_operation(peer.arrived);
            ste_free_operation(peer.credit);
            for (ste_operation *operation : peer.operations) {
                ste_free_operation(operation);
            }
            ste_free_target(peer.target);
        }
        ste_free_region(in_region_);
        ste_free_region(out_region_);
        if (is_closed) {
            std::free(in_);
            std::free(out_);
        }
    }

    uint32_t end() const { return end_; }
    uint32_t ends() const { return ends_; }

    // The number of a message: `is_sent` takes it.
    uint64_t send(uint32_t peer, const std::string &from, const std::string &text) {
        const uint32_t length = static_cast<uint32_t>(from.size());
        std::string message(reinterpret_cast<const char *>(&length), sizeof length);
        message += from + text;
        Peer &to = peers_[peer];
        for (size_t at = 0; at == 0 || at < message.size(); at += SLOT - HEAD) {
            const std::string part = message.substr(at, SLOT - HEAD);
            const uint32_t head[2] = {static_cast<uint32_t>(part.size()), at + (SLOT - HEAD) < message.size()};
            to.queue.push_back(std::string(reinterpret_cast<const char *>(head), HEAD) + part);
            to.taken++;
        }
        return to.taken;
    }

    // Whether all of it lies in the peer's memory.
    bool is_sent(uint32_t peer, uint64_t number) const { return peers_[peer].done >= number; }
    bool is_lost(uint32_t peer) const { return peers_[peer].lost; }

    // Sends and receives what can be now.
    void progress(Messages &messages) {
        for (uint32_t peer = 0; peer < ends_; peer++) {
            if (peer != end_ && !peers_[peer].lost) {
                Peer &of = peers_[peer];
                of.lost = !(give_back(peer, of) && receive(peer, of, messages) && post(peer, of));
            }
        }
    }

private:
    static constexpr uint32_t SLOTS = 32;
    static constexpr size_t SLOT = 2048;
    // Bytes of this part, and whether another one follows.
    static constexpr size_t HEAD = 2 * sizeof(uint32_t);
    static constexpr uint32_t CREDIT = SLOTS;

    struct Peer {
        ste_target *target = nullptr;
        // Expectations of the next slot, and of the next one given back.
        ste_operation *arrived = nullptr, *credit = nullptr;
        // Slots read; posted, in the peer's memory, given back by it.
        uint64_t read = 0, posted = 0, done = 0, free = 0;
        // Parts that were taken so far, and those of them that wait.
        uint64_t taken = 0;
        std::deque<std::string> queue;
        std::array<ste_operation *, SLOTS> operations{};
        std::string partial;
        bool lost = false;
    };

    bool expect(uint32_t peer, uint32_t imm, ste_operation **operation) const {
        return ste_expect(engine_, peer, imm, 1, UINT64_MAX, nullptr, operation) == STE_OK;
    }

    // Whether it ended well, if it ended; `failed` otherwise.
    static bool ended(ste_operation *&operation, bool &failed) {
        const int status = ste_test(operation, nullptr);
        if (status == STE_TIMEOUT) {
            return false;
        }
        failed = status != STE_OK;
        ste_free_operation(operation);
        operation = nullptr;
        return !failed;
    }

    // Slots that the peer has read, and those that it has.
    bool give_back(uint32_t peer, Peer &of) const {
        bool failed = false;
        while (ended(of.credit, failed)) {
            of.free++;
            if (!expect(peer, CREDIT, &of.credit)) {
                return false;
            }
        }
        while (!failed && of.done < of.posted && ended(of.operations[of.done % SLOTS], failed)) {
            of.done++;
        }
        return !failed;
    }

    bool receive(uint32_t peer, Peer &of, Messages &messages) const {
        bool failed = false;
        while (ended(of.arrived, failed)) {
            const uint8_t *slot = in_ + (size_t{peer} * SLOTS + of.read % SLOTS) * SLOT;
            uint32_t head[2];
            std::memcpy(head, slot, HEAD);
            if (head[0] > SLOT - HEAD) {
                return false;
            }
            of.partial.append(reinterpret_cast<const char *>(slot + HEAD), head[0]);
            if (head[1] == 0 && !deliver(of.partial, messages)) {
                return false;
            }
            of.read++;
            ste_operation *credit = nullptr;
            if (!expect(peer, static_cast<uint32_t>(of.read % SLOTS), &of.arrived) ||
                ste_write(engine_, peer, out_region_, 0, of.target, 0, 0, CREDIT, nullptr, &credit) != STE_OK) {
                return false;
            }
            // It goes on, and has no memory.
            ste_free_operation(credit);
        }
        return !failed;
    }

    static bool deliver(std::string &message, Messages &messages) {
        uint32_t length = 0;
        if (message.size() < sizeof length) {
            return false;
        }
        std::memcpy(&length, message.data(), sizeof length);
        if (message.size() - sizeof length < length) {
            return false;
        }
        messages.emplace_back(message.substr(sizeof length, length), message.substr(sizeof length + length));
        message.clear();
        return true;
    }

    bool post(uint32_t peer, Peer &of) const {
        while (!of.queue.empty() && of.posted - of.done < SLOTS && of.posted - of.free < SLOTS) {
            const uint32_t slot = static_cast<uint32_t>(of.posted % SLOTS);
            const std::string &part = of.queue.front();
            const uint64_t from = (uint64_t{peer} * SLOTS + slot) * SLOT, to = (uint64_t{end_} * SLOTS + slot) * SLOT;
            std::memcpy(out_ + from, part.data(), part.size());
            if (ste_write(engine_, peer, out_region_, from, of.target, to, part.size(), slot, nullptr,
                          &of.operations[slot]) != STE_OK) {
                return false;
            }
            of.queue.pop_front();
            of.posted++;
        }
        return true;
    }

    ste_engine *engine_ = nullptr;
    uint32_t end_ = 0, ends_ = 0;
    uint8_t *in_ = nullptr, *out_ = nullptr;
    ste_region *in_region_ = nullptr, *out_region_ = nullptr;
    std::vector<Peer> peers_;
};

} // namespace shunt
