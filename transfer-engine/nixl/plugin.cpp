// Shunt's transfer engine as a backend of NIXL: libplugin_SHUNT.so. Each agent is a node, which others connect to at any
// time.

#include "notes.h"
#include "request.h"

#include "backend/backend_engine.h"
#include "backend/backend_plugin.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>

namespace {

using namespace shunt;

constexpr uint64_t MILLISECOND = 1'000'000;
// In front of the address that an agent listens at.
constexpr const char *CONNECTION = "shunt 2 ";

void complain(const char *what) { std::fprintf(stderr, "shunt nixl: %s: %s\n", what, ste_last_error()); }

nixl_status_t as_nixl(int status) {
    switch (status) {
    case STE_OK:
        return NIXL_SUCCESS;
    case STE_PEER_LOST:
    case STE_PEER_LEFT:
    case STE_NICS:
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
    case STE_DENIED:
        return NIXL_ERR_NOT_ALLOWED;
    default:
        return NIXL_ERR_BACKEND;
    }
}

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
        connect_ns_ = options.timeout_ns;
        std::string at;
        if (getInitParam("listen", at) != NIXL_SUCCESS || at.empty()) {
            at = "127.0.0.1:0";
        }
        const char *rank = std::getenv("SHUNT_RANK");
        const uint64_t own = number("number", rank == nullptr ? 0 : std::strtoull(rank, nullptr, 10));
        char text_at[STE_ADDRESS_MAX];
        size_t bytes = sizeof text_at;
        // Where something fails, NIXL drops this at once.
        if (ste_listen(&options, at.c_str(), static_cast<uint32_t>(own), &engine_) != STE_OK ||
            ste_listens_at(engine_, text_at, &bytes) != STE_OK) {
            complain("a backend");
            initErr = true;
            return;
        }
        listens_at_ = text_at;
    }

    ~Engine() override {
        if (engine_ != nullptr && ste_close(engine_, 10'000 * MILLISECOND) != STE_OK) {
            complain("a backend that ends");
        }
        for (ste_operation *operation : sent_) {
            ste_free_operation(operation);
        }
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

    // Returns when no byte of any agent lands there any more. Else an error, and the memory stays registered.
    nixl_status_t deregisterMem(nixlBackendMD *memory) override {
        auto *own = dynamic_cast<Own *>(memory);
        if (own == nullptr) {
            return NIXL_ERR_INVALID_PARAM;
        }
        if (ste_deregister(own->region) != STE_OK) {
            complain("memory that is deregistered");
            return NIXL_ERR_NOT_ALLOWED;
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
        text = CONNECTION + listens_at_;
        return NIXL_SUCCESS;
    }

    nixl_status_t loadRemoteConnInfo(const std::string &agent, const std::string &text) override {
        const std::string start = CONNECTION;
        if (text.rfind(start, 0) != 0 || text == start + listens_at_) {
            std::fprintf(stderr, "shunt nixl: agent %s: expected '%sHOST:PORT' of another agent, got '%s'\n",
                         agent.c_str(), CONNECTION, text.c_str());
            return NIXL_ERR_INVALID_PARAM;
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        agents_[agent] = {text.substr(start.size()), NO_PEER};
        return NIXL_SUCCESS;
    }

    nixl_status_t connect(const std::string &agent) override {
        uint32_t peer;
        return find(agent, peer);
    }

    // The other agent may go on using memory of this one: it has not asked for an end.
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
        const nixl_status_t found = find(agent, request->peer);
        if (found != NIXL_SUCCESS) {
            return found;
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
        if (request == nullptr || !matched(local, remote, parts)) {
            return NIXL_ERR_INVALID_PARAM;
        }
        if (!request->operations.empty()) {
            return NIXL_ERR_REPOST_ACTIVE;
        }
        // Also where its agent has another peer since, or is there again.
        const nixl_status_t found = find(agent, request->peer);
        if (found != NIXL_SUCCESS) {
            return found;
        }
        request->failure = STE_OK;
        request->is_quiet = true;
        request->has_message = arguments != nullptr && arguments->hasNotif;
        request->message = request->has_message ? arguments->notifMsg : std::string();
        for (size_t at = 0; at < parts.size() && request->failure == STE_OK;) {
            at += operation == NIXL_WRITE ? write(engine_, *request, parts, at) : read(engine_, *request, parts, at);
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
        if (!all_ended(*request)) {
            return NIXL_IN_PROG;
        }
        if (request->failure != STE_OK || !request->has_message) {
            return as_nixl(request->failure);
        }
        // The message goes behind the data.
        request->has_message = false;
        request->failure =
            Notes::send(engine_, request->peer, localAgent, request->message, request->operations);
        return all_ended(*request) ? as_nixl(request->failure) : NIXL_IN_PROG;
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
        Notes::Received received;
        const int status = notes_.receive(engine_, received);
        list.insert(list.end(), received.begin(), received.end());
        tidy();
        return status == STE_OK || !received.empty() ? NIXL_SUCCESS : as_nixl(status);
    }

    nixl_status_t genNotif(const std::string &agent, const std::string &message) const override {
        uint32_t peer;
        const nixl_status_t found = find(agent, peer);
        if (found != NIXL_SUCCESS) {
            return found;
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        tidy();
        return as_nixl(Notes::send(engine_, peer, localAgent, message, sent_));
    }

private:
    uint64_t number(const char *name, uint64_t otherwise) const {
        std::string text;
        if (getInitParam(name, text) != NIXL_SUCCESS || text.empty()) {
            return otherwise;
        }
        return std::strtoull(text.c_str(), nullptr, 10);
    }

    // The peer that an agent is: connected now, if it is not yet or not any more.
    nixl_status_t find(const std::string &agent, uint32_t &peer) const {
        Agent known;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            const auto found = agents_.find(agent);
            if (found == agents_.end()) {
                return NIXL_ERR_NOT_FOUND;
            }
            known = found->second;
        }
        // The number of one that has left is not used again.
        if (known.peer != NO_PEER && is_there(known.peer)) {
            peer = known.peer;
            return NIXL_SUCCESS;
        }
        const int status = ste_connect(engine_, known.at.c_str(), connect_ns_, &peer);
        if (status != STE_OK) {
            complain(("agent " + agent).c_str());
            return as_nixl(status);
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = agents_.find(agent);
        if (found != agents_.end() && found->second.at == known.at) {
            found->second.peer = peer;
        }
        return NIXL_SUCCESS;
    }

    bool is_there(uint32_t peer) const {
        std::vector<uint32_t> peers(16);
        for (;;) {
            size_t count = peers.size();
            const int status = ste_peers(engine_, peers.data(), &count);
            peers.resize(count);
            if (status != STE_TOO_SMALL) {
                return status == STE_OK && std::find(peers.begin(), peers.end(), peer) != peers.end();
            }
        }
    }

    // Passes over what nothing waits for: notifications that were sent, peers that came or left.
    void tidy() const {
        ste_change change;
        while (ste_next_change(engine_, 0, &change) == STE_OK) {
            if (change.joined == 0) {
                notes_.forget(change.peer);
            }
        }
        std::erase_if(sent_, [](ste_operation *operation) {
            const int status = ste_test(operation, nullptr);
            if (status == STE_TIMEOUT) {
                return false;
            }
            if (status != STE_OK) {
                complain("a notification");
            }
            ste_free_operation(operation);
            return true;
        });
    }

    struct Agent {
        std::string at;
        uint32_t peer = NO_PEER;
    };

    static constexpr uint32_t NO_PEER = std::numeric_limits<uint32_t>::max();

    ste_engine *engine_ = nullptr;
    std::string listens_at_;
    uint64_t release_ns_ = 0, connect_ns_ = 0;
    mutable std::mutex mutex_;
    mutable Notes notes_;
    // Notifications of no request, which go on.
    mutable std::vector<ste_operation *> sent_;
    mutable std::map<std::string, Agent> agents_;
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
    return {{"listen", "127.0.0.1:0"}, {"number", ""},          {"rails", "2"},
            {"soft_gbps", ""},         {"timeout_ms", "60000"}, {"release_timeout_ms", "10000"}};
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
