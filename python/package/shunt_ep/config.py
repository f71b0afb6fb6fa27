"""DeepEP's `Config`: SMs and rings of normal mode, and those that it starts from."""

from . import _native

# Experts of a rank that a size hint has room for.
_LOCAL_EXPERTS = 1024


def node_size(ranks):
    """Ranks of a node unless somebody says otherwise: eight as in DeepEP, or as many as divide them."""
    return next(size for size in range(min(8, ranks), 0, -1) if ranks % size == 0)


class Config:
    """SMs, two for each channel, and slots: what is sent at once, and what a ring holds, inside and between nodes.

    Inside a node rows are handed on one by one, so that `num_max_nvl_chunked_send_tokens` is kept by any value.
    """

    def __init__(
        self,
        num_sms=20,
        num_max_nvl_chunked_send_tokens=6,
        num_max_nvl_chunked_recv_tokens=256,
        num_max_rdma_chunked_send_tokens=6,
        num_max_rdma_chunked_recv_tokens=256,
    ):
        if num_sms < 2 or num_sms % 2:
            raise ValueError(f"num_sms: {num_sms} was given; an even number from 2 on is right")
        pairs = {
            "nvl": (num_max_nvl_chunked_send_tokens, num_max_nvl_chunked_recv_tokens),
            "rdma": (num_max_rdma_chunked_send_tokens, num_max_rdma_chunked_recv_tokens),
        }
        for name, (send, receive) in pairs.items():
            if not 0 < send < receive:
                met = f"num_max_{name}_chunked_send_tokens={send}, num_max_{name}_chunked_recv_tokens={receive}"
                raise ValueError(f"{met} were given; 1 at least, and more to receive than to send, are right")
        self.num_sms = num_sms
        self.num_max_nvl_chunked_send_tokens, self.num_max_nvl_chunked_recv_tokens = pairs["nvl"]
        self.num_max_rdma_chunked_send_tokens, self.num_max_rdma_chunked_recv_tokens = pairs["rdma"]

    def __repr__(self):
        return f"Config{tuple(vars(self).values())}"

    def _rings(self, ranks):
        """SMs, slots inside a node, slots of one put, slots between nodes.

        One buffer sends both ways, and each way puts what it may at most, or less: so the lesser of the two.
        """
        chunk = min(self.num_max_rdma_chunked_send_tokens, combine_config(2, ranks).num_max_rdma_chunked_send_tokens)
        return self.num_sms, self.num_max_nvl_chunked_recv_tokens, chunk, self.num_max_rdma_chunked_recv_tokens

    def get_nvl_buffer_size_hint(self, hidden_bytes, num_ranks):
        """0: rings inside a node are in the same heap as those between nodes."""
        return 0

    def get_rdma_buffer_size_hint(self, hidden_bytes, num_ranks, *, ranks_per_node=None):
        """Bytes of a heap that holds a buffer with these rings. `ranks_per_node` is Shunt's own."""
        if hidden_bytes % 2:
            raise ValueError(f"hidden_bytes: {hidden_bytes} was given; those of BF16, two a channel, are right")
        locals_ = node_size(num_ranks) if ranks_per_node is None else ranks_per_node
        # Rings do not grow with the tokens.
        return _native.normal_size_hint(
            (num_ranks, locals_, _LOCAL_EXPERTS, 1, hidden_bytes // 2), self._rings(num_ranks)
        )


# By ranks: tokens sent at once and held inside a node, the same between nodes, as DeepEP starts from.
_DISPATCH = {
    2: (24, 256, 6, 128),
    4: (6, 256, 6, 128),
    8: (6, 256, 6, 128),
    16: (36, 288, 20, 128),
    24: (32, 288, 8, 128),
    64: (32, 288, 8, 128),
    96: (20, 480, 12, 128),
    128: (20, 560, 12, 128),
    160: (28, 720, 12, 128),
}
_COMBINE = {
    2: (10, 256, 6, 128),
    4: (9, 256, 6, 128),
    8: (4, 256, 6, 128),
    16: (4, 288, 12, 128),
    24: (1, 288, 8, 128),
    64: (1, 288, 8, 128),
    96: (1, 480, 8, 128),
    128: (1, 560, 8, 128),
    160: (2, 720, 8, 128),
}


def _of(table, sms, ranks):
    if ranks < 1:
        raise ValueError(f"num_ranks: {ranks} was given; 1 at least is right")
    return Config(sms, *table[next((size for size in table if size >= ranks), max(table))])


def dispatch_config(sms, ranks):
    """Where DeepEP says nothing of so many ranks, what it says of the next larger number, or of the largest."""
    return _of(_DISPATCH, sms, ranks)


def combine_config(sms, ranks):
    """The same for a combine."""
    return _of(_COMBINE, sms, ranks)
