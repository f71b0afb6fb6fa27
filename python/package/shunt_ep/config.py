"""DeepEP's `Config`: SMs and rings of normal mode, and those that it starts from."""

from __future__ import annotations

from . import _native, checked

# Slots of a ring: twice as many are still a number of 32 bits.
_SLOTS_MAX = 2**31 - 1
# Ranks of a node: bits of a mask.
_LOCALS_MAX = 32


def node_size(ranks: int, said: int | None = None) -> int:
    """Ranks of a node. Unless somebody says otherwise: eight as in DeepEP, or as many as divide them."""
    if said is None:
        return next(size for size in range(min(8, ranks), 0, -1) if ranks % size == 0)
    said = checked.whole(said, "ranks_per_node", 1, _LOCALS_MAX)
    if ranks % said:
        raise ValueError(f"ranks_per_node: expected a divisor of {ranks}, the ranks, got {said}")
    return said


def even(sms: int, what: str) -> int:
    """SMs: two for each channel."""
    sms = checked.whole(sms, what, 2, _SLOTS_MAX)
    if sms % 2:
        raise ValueError(f"{what}: expected an even number from 2 on, got {sms}")
    return sms


class Config:
    """SMs, two for each channel, and slots: what is sent at once, and what a ring holds, inside and between nodes.

    Inside a node rows are handed on one by one, so that `num_max_nvl_chunked_send_tokens` is kept by any value.
    """

    def __init__(
        self,
        num_sms: int = 20,
        num_max_nvl_chunked_send_tokens: int = 6,
        num_max_nvl_chunked_recv_tokens: int = 256,
        num_max_rdma_chunked_send_tokens: int = 6,
        num_max_rdma_chunked_recv_tokens: int = 256,
    ) -> None:
        num_sms = even(num_sms, "num_sms")
        pairs = {
            "nvl": (num_max_nvl_chunked_send_tokens, num_max_nvl_chunked_recv_tokens),
            "rdma": (num_max_rdma_chunked_send_tokens, num_max_rdma_chunked_recv_tokens),
        }
        for kind, (send, receive) in pairs.items():
            names = f"num_max_{kind}_chunked_send_tokens", f"num_max_{kind}_chunked_recv_tokens"
            send, receive = (
                checked.whole(slots, name, 1, _SLOTS_MAX) for slots, name in zip((send, receive), names, strict=True)
            )
            if send >= receive:
                met = f"{send}, and {names[1]}={receive},"
                raise ValueError(f"{names[0]}: expected more to receive than to send, got {met}")
            pairs[kind] = send, receive
        self.num_sms = num_sms
        self.num_max_nvl_chunked_send_tokens, self.num_max_nvl_chunked_recv_tokens = pairs["nvl"]
        self.num_max_rdma_chunked_send_tokens, self.num_max_rdma_chunked_recv_tokens = pairs["rdma"]

    def __repr__(self) -> str:
        return f"Config{tuple(vars(self).values())}"

    def _rings(self, ranks: int) -> tuple[int, int, int, int]:
        """SMs, slots inside a node, slots of one put, slots between nodes.

        One buffer sends both ways, and each way puts what it may at most, or less: so the lesser of the two.
        """
        chunk = min(self.num_max_rdma_chunked_send_tokens, combine_config(2, ranks).num_max_rdma_chunked_send_tokens)
        return self.num_sms, self.num_max_nvl_chunked_recv_tokens, chunk, self.num_max_rdma_chunked_recv_tokens

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0: rings inside a node are in the same heap as those between nodes."""
        self._sizes(hidden_bytes, num_ranks)
        return 0

    def get_rdma_buffer_size_hint(
        self, hidden_bytes: int, num_ranks: int, *, ranks_per_node: int | None = None
    ) -> int:
        """Bytes of a heap that holds a buffer with these rings. `ranks_per_node` is Shunt's own."""
        hidden, ranks = self._sizes(hidden_bytes, num_ranks)
        # Rings do not grow with the tokens.
        sizes = ranks, node_size(ranks, ranks_per_node), checked.LOCAL_EXPERTS_MAX, 1, hidden
        return _native.normal_size_hint(sizes, self._rings(ranks))

    @staticmethod
    def _sizes(hidden_bytes, num_ranks):
        """Channels of a token, and ranks."""
        most = 2 * (checked.U32 - checked.U32 % checked.HIDDEN_STEP)
        hidden = checked.whole(hidden_bytes, "hidden_bytes", 1, most)
        if hidden % (2 * checked.HIDDEN_STEP):
            right = f"two bytes of each channel, which are a multiple of {checked.HIDDEN_STEP},"
            raise ValueError(f"hidden_bytes: expected {right}, got {hidden}")
        return hidden // 2, checked.whole(num_ranks, "num_ranks", 1, checked.RANKS_MAX)


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
    ranks = checked.whole(ranks, "num_ranks", 1, checked.RANKS_MAX)
    return Config(sms, *table[next((size for size in table if size >= ranks), max(table))])


def dispatch_config(sms: int, ranks: int) -> Config:
    """Where DeepEP says nothing of so many ranks, what it says of the next larger number, or of the largest."""
    return _of(_DISPATCH, sms, ranks)


def combine_config(sms: int, ranks: int) -> Config:
    """The same for a combine."""
    return _of(_COMBINE, sms, ranks)
