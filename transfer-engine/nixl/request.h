// What a request of NIXL comes to: operations of the engine.
#pragma once

#include <shunt_transfer.h>

#include "backend/backend_engine.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace shunt {

// Memory of this agent.
struct Own : nixlBackendMD {
    Own() : nixlBackendMD(true) {}
    ste_region *region = nullptr;
    uintptr_t base = 0;
    std::string description;
};

// Memory of another one.
struct Theirs : nixlBackendMD {
    Theirs() : nixlBackendMD(false) {}
    ste_target *target = nullptr;
    uintptr_t base = 0;
};

struct Request : nixlBackendReqH {
    std::vector<ste_operation *> operations;
    uint32_t peer = 0;
    // A message goes behind the data.
    bool has_message = false;
    std::string message;
    // What the first operation that failed ended with.
    int failure = STE_OK;
    bool is_quiet = true;
};

// One piece of a request: where it lies at both ends.
struct Part {
    Own *own;
    Theirs *theirs;
    uint64_t here, there, bytes;
};

inline bool matched(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote, std::vector<Part> &parts) {
    if (local.descCount() != remote.descCount() || local.descCount() == 0) {
        return false;
    }
    for (int at = 0; at < local.descCount(); at++) {
        const nixlMetaDesc &here = local[at], &there = remote[at];
        auto *own = dynamic_cast<Own *>(here.metadataP);
        auto *theirs = dynamic_cast<Theirs *>(there.metadataP);
        if (own == nullptr || theirs == nullptr || here.len != there.len || here.addr < own->base ||
            there.addr < theirs->base) {
            return false;
        }
        parts.push_back({own, theirs, here.addr - own->base, there.addr - theirs->base, here.len});
    }
    return true;
}

inline void began(Request &request, ste_operation *const &operation, int status) {
    if (status == STE_OK) {
        request.operations.push_back(operation);
    } else {
        request.failure = status;
    }
}

// Parts of one size between the same two regions go as pages, which begin at any byte: 2^32 of them are in reach.
inline size_t write(ste_engine *engine, Request &request, const std::vector<Part> &parts, size_t at) {
    const Part &first = parts[at];
    std::vector<uint32_t> here, there;
    ste_pages from{nullptr, 0, 1, first.here}, to{nullptr, 0, 1, first.there};
    const auto fits = [](uint64_t offset, uint64_t base) {
        return offset >= base && offset - base <= std::numeric_limits<uint32_t>::max();
    };
    for (size_t next = at; next < parts.size(); next++) {
        const Part &part = parts[next];
        if (part.own != first.own || part.theirs != first.theirs || part.bytes != first.bytes ||
            !fits(part.here, from.offset) || !fits(part.there, to.offset)) {
            break;
        }
        here.push_back(static_cast<uint32_t>(part.here - from.offset));
        there.push_back(static_cast<uint32_t>(part.there - to.offset));
    }
    from.indices = here.data();
    to.indices = there.data();
    from.count = to.count = here.size();
    ste_operation *operation = nullptr;
    if (here.size() == 1) {
        began(request, operation,
              ste_write(engine, request.peer, first.own->region, first.here, first.theirs->target, first.there,
                        first.bytes, STE_NO_IMM, nullptr, &operation));
    } else {
        began(request, operation,
              ste_write_pages(engine, request.peer, first.bytes, first.own->region, &from, first.theirs->target,
                              &to, STE_NO_IMM, nullptr, &operation));
    }
    return here.size();
}

inline size_t read(ste_engine *engine, Request &request, const std::vector<Part> &parts, size_t at) {
    const Part &part = parts[at];
    ste_operation *operation = nullptr;
    began(request, operation,
          ste_read(engine, request.peer, part.theirs->target, part.there, part.own->region, part.here, part.bytes,
                   nullptr, &operation));
    return 1;
}

inline void cancel(const Request &request) {
    for (ste_operation *operation : request.operations) {
        ste_cancel(operation, STE_CANCEL_NOW, 0);
    }
}

// Takes those that have ended off. Where one failed the others are cancelled: a request ends when all have.
inline bool all_ended(Request &request) {
    const bool was_well = request.failure == STE_OK;
    std::erase_if(request.operations, [&](ste_operation *operation) {
        ste_result result{STE_OK, 1};
        if (ste_test(operation, &result) == STE_TIMEOUT) {
            return false;
        }
        if (request.failure == STE_OK) {
            request.failure = result.status;
        }
        request.is_quiet = request.is_quiet && result.quiet == 1;
        ste_free_operation(operation);
        return true;
    });
    if (was_well && request.failure != STE_OK) {
        cancel(request);
    }
    return request.operations.empty();
}

} // namespace shunt
