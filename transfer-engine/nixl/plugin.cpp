// Shunt's transfer engine as a backend of NIXL: libplugin_SHUNT.so. Agents are the ends of one launcher's job.

#include "mailbox.h"

#include "backend/backend_engine.h"
#include "backend/backend_plugin.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>

namespace {

constexpr uint64_t MILLISECOND = 1'000'000;
constexpr const char *CONNECTION = "shunt 1 ";

void complain(const char *what) { std::fprintf(stderr, "shunt nixl: %s: %s\n", what, ste_last_error()); }

nixl_status_t as_nixl(int status) {
    switch (status) {
    case STE_OK:
        return NIXL_SUCCESS;
    case STE_PEER_LOST:
    case STE_CLOSED:
        return NIXL_ERR_REMOTE_DISCONNECT;
    case STE_CANCELLED:
        return NIXL_ERR_CANCELED;
    case STE_OUT_OF_REGION:
    case STE_REFUSED:
    case STE_DESCRIPTION:
    case STE_HANDLE:
        return NIXL_ERR_INVALID_PARAM;
    case STE_RIGHTS:
        return NIXL_ERR_NOT_ALLOWED;
    default:
        return NIXL_ERR_BACKEND;
    }
}

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
    bool has_message = false, is_sending = false;
    std::string message;
    uint64_t number = 0;
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

class Engine : public nixlBackendEngine {
public:
    explicit Engine(const nixlBackendInitParams *parameters) : nixlBackendEngine(parameters) {
        ste_options options = STE_OPTIONS(number("timeout_ms", 60'000) * MILLISECOND);
        options.rails = static_cast<uint32_t>(number("rails", 2));
        std::string text;
        if (getInitParam("soft_gbps", text) == NIXL_SUCCESS && !text.empty()) {
            options.soft_gbps = std::strtod(text.c_str(), nullptr);
        }
        release_ns_ = number("release_timeout_ms", 10'000) * MILLISECOND;
        // Where something fails, NIXL drops this at once.
        if (ste_open(&options, &engine_) != STE_OK || !mailbox_.open(engine_, options.timeout_ns)) {
            complain("a backend");
            initErr = true;
        }
    }

    ~Engine() override {
        const bool is_closed = engine_ == nullptr || ste_close(engine_, 10'000 * MILLISECOND) == STE_OK;
        if (!is_closed) {
            complain("a backend that ends");
        }
        mailbox_.free(is_closed);
    }

    bool supportsRemote() const override { return true; }
    bool supportsLocal() const override { return false; }
    bool supportsNotif() const override { return true; }
    nixl_mem_list_t getSupportedMems() const override { return {DRAM_SEG}; }

    nixl_status_t registerMem(const nixlBlobDesc &memory, const nixl_mem_t &kind, nixlBackendMD *&out) override {
        if (kind != DRAM_SEG) {
            return NIXL_ERR_NOT_SUPPORTED;
        }
        auto own = std::make_unique<Own>();
        own->base = memory.addr;
        char description[STE_DESCRIPTION_MAX];
        size_t bytes = sizeof description;
        void *const address = reinterpret_cast<void *>(memory.addr);
        int status = ste_register(engine_, address, memory.len, STE_READ_WRITE, &own->region);
        if (status == STE_OK) {
            status = ste_describe(own->region, description, &bytes);
        }
        if (status != STE_OK) {
            complain("memory");
            return as_nixl(status);
        }
        own->description.assign(description, bytes);
        out = own.release();
        return NIXL_SUCCESS;
    }

    // The NICs keep it until the backend ends: there is no way to take a key back yet.
    nixl_status_t deregisterMem(nixlBackendMD *memory) override {
        auto *own = dynamic_cast<Own *>(memory);
        if (own == nullptr) {
            return NIXL_ERR_INVALID_PARAM;
        }
        ste_free_region(own->region);
        delete own;
        return NIXL_SUCCESS;
    }

    nixl_status_t getPublicData(const nixlBackendMD *memory, std::string &text) const override {
        const auto *own = dynamic_cast<const Own *>(memory);
        if (own == nullptr) {
            return NIXL_ERR_INVALID_PARAM;
        }
        text = own->description;
        return NIXL_SUCCESS;
    }

    nixl_status_t getConnInfo(std::string &text) const override {
        text = CONNECTION + std::to_string(mailbox_.end());
        return NIXL_SUCCESS;
    }

    nixl_status_t loadRemoteConnInfo(const std::string &agent, const std::string &text) override {
        const std::string start = CONNECTION;
        char *rest = nullptr;
        const unsigned long end =
            text.rfind(start, 0) == 0 ? std::strtoul(text.c_str() + start.size(), &rest, 10) : mailbox_.ends();
        if (end >= mailbox_.ends() || end == mailbox_.end() || *rest != 0) {
            std::fprintf(stderr, "shunt nixl: agent %s: expected another end of this job, got '%s'\n", agent.c_str(),
                         text.c_str());
            return NIXL_ERR_INVALID_PARAM;
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        agents_[agent] = static_cast<uint32_t>(end);
        return NIXL_SUCCESS;
    }

    // All ends are connected since they were opened.
    nixl_status_t connect(const std::string &agent) override {
        uint32_t peer;
        return find(agent, peer) ? NIXL_SUCCESS : NIXL_ERR_NOT_FOUND;
    }

    nixl_status_t disconnect(const std::string &agent) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        return agents_.erase(agent) > 0 ? NIXL_SUCCESS : NIXL_ERR_NOT_FOUND;
    }

    nixl_status_t loadRemoteMD(const nixlBlobDesc &memory, const nixl_mem_t &kind, const std::string &,
                               nixlBackendMD *&out) override {
        if (kind != DRAM_SEG) {
            return NIXL_ERR_NOT_SUPPORTED;
        }
        auto theirs = std::make_unique<Theirs>();
        theirs->base = memory.addr;
        const std::string &text = memory.metaInfo;
        const int status = ste_import(engine_, text.data(), text.size(), &theirs->target);
        if (status != STE_OK) {
            complain("memory of another agent");
            return as_nixl(status);
        }
        out = theirs.release();
        return NIXL_SUCCESS;
    }

    nixl_status_t unloadMD(nixlBackendMD *memory) override {
        auto *theirs = dynamic_cast<Theirs *>(memory);
        if (theirs == nullptr) {
            return NIXL_ERR_INVALID_PARAM;
        }
        ste_free_target(theirs->target);
        delete theirs;
        return NIXL_SUCCESS;
    }

    nixl_status_t prepXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
                           const std::string &agent, nixlBackendReqH *&handle,
                           const nixl_opt_b_args_t *) const override {
        auto request = std::make_unique<Request>();
        std::vector<Part> parts;
        if (!find(agent, request->peer)) {
            return NIXL_ERR_NOT_FOUND;
        }
        if (!matched(local, remote, parts)) {
            return NIXL_ERR_INVALID_PARAM;
        }
        handle = request.release();
        return NIXL_SUCCESS;
    }

    nixl_status_t postXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
                           const nixl_meta_dlist_t &remote, const std::string &agent, nixlBackendReqH *&handle,
                           const nixl_opt_b_args_t *arguments) const override {
        auto *request = dynamic_cast<Request *>(handle);
        std::vector<Part> parts;
        if (request == nullptr || !matched(local, remote, parts) || !find(agent, request->peer)) {
            return NIXL_ERR_INVALID_PARAM;
        }
        if (!request->operations.empty() || request->is_sending) {
            return NIXL_ERR_REPOST_ACTIVE;
        }
        request->failure = STE_OK;
        request->is_quiet = true;
        request->has_message = arguments != nullptr && arguments->hasNotif;
        request->message = request->has_message ? arguments->notifMsg : std::string();
        for (size_t at = 0; at < parts.size() && request->failure == STE_OK;) {
            at += operation == NIXL_WRITE ? write(*request, parts, at) : read(*request, parts, at);
        }
        if (request->failure != STE_OK) {
            complain("a request");
            cancel(*request);
        }
        return checkXfer(handle);
    }

    nixl_status_t checkXfer(nixlBackendReqH *handle) const override {
        auto *request = dynamic_cast<Request *>(handle);
        if (request == nullptr) {
            return NIXL_ERR_INVALID_PARAM;
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        mailbox_.progress(messages_);
        if (!all_ended(*request)) {
            return NIXL_IN_PROG;
        }
        if (request->failure != STE_OK || !request->has_message) {
            return as_nixl(request->failure);
        }
        // The message goes behind the data.
        if (!request->is_sending) {
            request->number = mailbox_.send(request->peer, localAgent, request->message);
            request->is_sending = true;
            mailbox_.progress(messages_);
        }
        if (mailbox_.is_lost(request->peer)) {
            request->failure = STE_PEER_LOST;
        } else if (!mailbox_.is_sent(request->peer, request->number)) {
            return NIXL_IN_PROG;
        }
        request->is_sending = request->has_message = false;
        return as_nixl(request->failure);
    }

    // Returns when no byte of it can land any more, and its own memory is not read any more. Else an error: called
    // again, it tries again.
    nixl_status_t releaseReqH(nixlBackendReqH *handle) const override {
        auto *request = dynamic_cast<Request *>(handle);
        if (request == nullptr) {
            return NIXL_ERR_INVALID_PARAM;
        }
        cancel(*request);
        const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(release_ns_);
        for (ste_operation *operation : request->operations) {
            const std::chrono::nanoseconds left = until - std::chrono::steady_clock::now();
            ste_wait(operation, static_cast<uint64_t>(std::max<int64_t>(left.count(), 0)), nullptr);
        }
        if (!all_ended(*request)) {
            complain("a request that is released");
            return NIXL_ERR_BACKEND;
        }
        const bool is_quiet = request->is_quiet;
        if (!is_quiet) {
            // Said once: the second call frees it.
            request->is_quiet = true;
            return NIXL_ERR_BACKEND;
        }
        delete request;
        return NIXL_SUCCESS;
    }

    nixl_status_t getNotifs(notif_list_t &list) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        mailbox_.progress(messages_);
        list.insert(list.end(), messages_.begin(), messages_.end());
        messages_.clear();
        return NIXL_SUCCESS;
    }

    nixl_status_t genNotif(const std::string &agent, const std::string &message) const override {
        uint32_t peer;
        if (!find(agent, peer)) {
            return NIXL_ERR_NOT_FOUND;
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        mailbox_.send(peer, localAgent, message);
        mailbox_.progress(messages_);
        return mailbox_.is_lost(peer) ? NIXL_ERR_REMOTE_DISCONNECT : NIXL_SUCCESS;
    }

private:
    uint64_t number(const char *name, uint64_t otherwise) const {
        std::string text;
        if (getInitParam(name, text) != NIXL_SUCCESS || text.empty()) {
            return otherwise;
        }
        return std::strtoull(text.c_str(), nullptr, 10);
    }

    bool find(const std::string &agent, uint32_t &peer) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = agents_.find(agent);
        if (found == agents_.end()) {
            return false;
        }
        peer = found->second;
        return true;
    }

    static bool matched(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote, std::vector<Part> &parts) {
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

    // Parts of one size between the same two regions go as pages, which begin at any byte: 2^32 of them are in reach.
    size_t write(Request &request, const std::vector<Part> &parts, size_t at) const {
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
                  ste_write(engine_, request.peer, first.own->region, first.here, first.theirs->target, first.there,
                            first.bytes, STE_NO_IMM, nullptr, &operation));
        } else {
            began(request, operation,
                  ste_write_pages(engine_, request.peer, first.bytes, first.own->region, &from, first.theirs->target,
                                  &to, STE_NO_IMM, nullptr, &operation));
        }
        return here.size();
    }

    size_t read(Request &request, const std::vector<Part> &parts, size_t at) const {
        const Part &part = parts[at];
        ste_operation *operation = nullptr;
        began(request, operation,
              ste_read(engine_, request.peer, part.theirs->target, part.there, part.own->region, part.here, part.bytes,
                       nullptr, &operation));
        return 1;
    }

    static void began(Request &request, ste_operation *const &operation, int status) {
        if (status == STE_OK) {
            request.operations.push_back(operation);
        } else {
            request.failure = status;
        }
    }

    static void cancel(const Request &request) {
        for (ste_operation *operation : request.operations) {
            ste_cancel(operation, STE_CANCEL_NOW, 0);
        }
    }

    // Takes those that have ended off. Where one failed the others are cancelled: a request ends when all have.
    static bool all_ended(Request &request) {
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

    ste_engine *engine_ = nullptr;
    uint64_t release_ns_ = 0;
    mutable std::mutex mutex_;
    mutable shunt::Mailbox mailbox_;
    mutable shunt::Mailbox::Messages messages_;
    std::map<std::string, uint32_t> agents_;
};

nixlBackendEngine *create(const nixlBackendInitParams *parameters) {
    try {
        return new Engine(parameters);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "shunt nixl: a backend: %s\n", error.what());
        return nullptr;
    }
}

void destroy(nixlBackendEngine *engine) { delete engine; }

nixl_b_params_t options() {
    return {{"rails", "2"}, {"soft_gbps", ""}, {"timeout_ms", "60000"}, {"release_timeout_ms", "10000"}};
}

} // namespace

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init() {
    static nixlBackendPlugin plugin = {NIXL_PLUGIN_API_VERSION,
                                       create,
                                       destroy,
                                       [] { return "SHUNT"; },
                                       [] { return "0.1.0"; },
                                       options,
                                       []() -> nixl_mem_list_t { return {DRAM_SEG}; }};
    return &plugin;
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini() {}
