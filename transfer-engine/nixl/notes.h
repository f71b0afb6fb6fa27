// Notifications of agents: messages of the engine, with the name of the agent that sent them. Those that are longer than a
// message go as several, which come in order.
#pragma once

#include <shunt_transfer.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace shunt {

class Notes {
public:
    // Who sent it, and what it says.
    using Received = std::vector<std::pair<std::string, std::string>>;

    // Begins to send one: its operations are added. What has begun goes on where a later part fails.
    static int send(ste_engine *engine, uint32_t peer, const std::string &from, const std::string &text,
                    std::vector<ste_operation *> &operations) {
        const uint32_t length = static_cast<uint32_t>(from.size());
        std::string whole(reinterpret_cast<const char *>(&length), sizeof length);
        whole += from + text;
        for (size_t at = 0; at == 0 || at < whole.size(); at += PART) {
            // Whether another part follows, and this one.
            const std::string part = std::string(1, at + PART < whole.size() ? '\1' : '\0') + whole.substr(at, PART);
            ste_operation *operation = nullptr;
            const int status = ste_send(engine, peer, part.data(), part.size(), nullptr, &operation);
            if (status != STE_OK) {
                return status;
            }
            operations.push_back(operation);
        }
        return STE_OK;
    }

    // Takes all that have come. STE_OK, or why none can.
    int receive(ste_engine *engine, Received &received) {
        for (;;) {
            uint32_t peer = 0;
            size_t bytes = buffer_.size();
            const int status = ste_receive(engine, 0, &peer, buffer_.data(), &bytes);
            if (status == STE_TOO_SMALL) {
                buffer_.resize(bytes);
            } else if (status == STE_OK) {
                take(peer, bytes, received);
            } else {
                return status == STE_TIMEOUT ? STE_OK : status;
            }
        }
    }

    // The rest of what a peer has begun does not come any more.
    void forget(uint32_t peer) { parts_.erase(peer); }

private:
    static constexpr size_t PART = STE_MESSAGE_MAX - 1;

    void take(uint32_t peer, size_t bytes, Received &received) {
        if (bytes == 0) {
            return;
        }
        std::string &whole = parts_[peer];
        whole.append(buffer_.data() + 1, bytes - 1);
        if (buffer_[0] != 0) {
            return;
        }
        uint32_t length = 0;
        // One that is no notification is passed over.
        if (whole.size() >= sizeof length) {
            std::memcpy(&length, whole.data(), sizeof length);
            if (whole.size() - sizeof length >= length) {
                received.emplace_back(whole.substr(sizeof length, length), whole.substr(sizeof length + length));
            }
        }
        parts_.erase(peer);
    }

    std::vector<char> buffer_ = std::vector<char>(4096);
    std::map<uint32_t, std::string> parts_;
};

} // namespace shunt
