"""Normal mode of the installed wheel: layout, dispatch and combine of two nodes of two against NumPy, bit by bit."""

import copy
import importlib.util
import unittest

import numpy as np
import shunt_ep as deep_ep
from test_buffer import on_all

NODES, LOCALS, HIDDEN, EXPERTS, TOPK = 2, 2, 512, 8, 3
RANKS, LOCAL = NODES * LOCALS, EXPERTS // (NODES * LOCALS)
# Rings so small that all of them wrap.
CONFIG = deep_ep.Config(4, 1, 3, 2, 4)
BF16, CODES = deep_ep.from_bf16, deep_ep.from_fp8(np.arange(256))


def start(config=CONFIG, ranks=RANKS, node=LOCALS, timeout=30, **options):
    """A job and a buffer of each rank. A rank that is left alone by a test that fails does not wait for long."""
    size = config.get_rdma_buffer_size_hint(2 * HIDDEN, ranks, ranks_per_node=node)
    job = deep_ep.SoftJob(ranks, size, num_qps_per_rank=4, ranks_per_node=node)
    return job, [deep_ep.Buffer(job.group(rank), 0, size, timeout=timeout, **options) for rank in range(ranks)]


def quantised(values):
    """FP8 and scales, as a caller makes them."""
    groups = values.reshape(len(values), values.shape[1] // 128, 128)
    scales = np.maximum(np.abs(groups).max(axis=2), 1e-4).astype(np.float32) / np.float32(448)
    finite = np.where(np.isnan(CODES), np.inf, CODES)
    order = np.argsort(finite)[:254]
    between = (finite[order][1:] + finite[order][:-1]) / 2
    codes = order[np.searchsorted(between, groups / scales[:, :, None])]
    return codes.astype(np.uint8).reshape(values.shape), scales


class Case:
    """A layer's input on all ranks, and what must come of it, without rings and messages."""

    def __init__(self, seed, fp8=False, ranks=RANKS, node=LOCALS):
        random = np.random.default_rng(seed)
        self.fp8, self.ranks, self.node = fp8, ranks, node
        # A rank without tokens, now and then.
        sizes = [int(random.integers(0, 14)) if (rank + seed) % 5 else 0 for rank in range(ranks)]
        self.topk = [np.argsort(random.random((size, EXPERTS)))[:, :TOPK].copy() for size in sizes]
        for topk in self.topk:
            topk[random.random(topk.shape) < 0.2] = -1
        self.weights = [random.random(topk.shape).astype(np.float32) for topk in self.topk]
        self.biases = [[self.bits(random, size) for _ in range(2)] for size in sizes]
        self.draw(random)

    @staticmethod
    def bits(random, size):
        return deep_ep.to_bf16(random.standard_normal((size, HIDDEN)).astype(np.float32))

    def draw(self, random):
        self.x = [self.bits(random, len(topk)) for topk in self.topk]
        if self.fp8:
            self.x = [quantised(BF16(bits)) for bits in self.x]

    def again(self, seed):
        """Other tokens that go the same ways."""
        other = copy.copy(self)
        other.draw(np.random.default_rng(seed))
        return other

    def goes(self, source, to):
        """By token."""
        return ((self.topk[source] >= 0) & (self.topk[source] // (EXPERTS // self.ranks) == to)).any(axis=1)

    def rows(self, to):
        """Source and token of each row."""
        return [(source, token) for source in range(self.ranks) for token in np.flatnonzero(self.goes(source, to))]

    def sent(self, part, row):
        source, token = row
        return (self.x[source][part] if self.fp8 else self.x[source])[token]

    def value(self, row):
        return deep_ep.dequantise((self.sent(0, row), self.sent(1, row))) if self.fp8 else BF16(self.sent(0, row))

    def chosen(self, to, row):
        """Experts of a row as numbers of the rank's, and their weights."""
        (source, token), local = row, EXPERTS // self.ranks
        index, weights = self.topk[source][token], self.weights[source][token]
        here = (index >= 0) & (index // local == to)
        return np.where(here, index - to * local, -1), np.where(here, weights, np.float32(0))

    def combined(self, rank, biases=()):
        sums = np.zeros((len(self.topk[rank]), HIDDEN), np.float32)
        goes = [self.goes(rank, to) for to in range(self.ranks)]
        for token in range(len(sums)):
            for first in range(0, self.ranks, self.node):
                here = [to for to in range(first, first + self.node) if goes[to][token]]
                of_node = np.zeros(HIDDEN, np.float32)
                for to in here:
                    row = (rank, token)
                    of_node += BF16(made(to * (EXPERTS // self.ranks), self.value(row), *self.chosen(to, row)))
                sums[token] += BF16(deep_ep.to_bf16(of_node))
        for bias in biases:
            sums += BF16(bias)
        return deep_ep.to_bf16(sums)


def made(first, values, index, weights):
    """What experts make of a row, as BF16."""
    out = np.zeros(HIDDEN, np.float32)
    for k in np.flatnonzero(index >= 0):
        out += weights[k] * (values * np.float32(first + index[k] + 1))
    return deep_ep.to_bf16(out)


class Layers(unittest.TestCase):
    def layout(self, buffer, case):
        rank, topk = buffer.rank, case.topk[buffer.rank]
        to_rank, to_node, to_expert, inside, event = buffer.get_dispatch_layout(topk, EXPERTS)
        self.assertIsNone(event.event)
        right = np.stack([case.goes(rank, to) for to in range(case.ranks)], axis=1)
        np.testing.assert_array_equal(inside, right)
        self.assertEqual([part.dtype.name for part in (to_rank, to_expert, inside)], ["int32", "int32", "bool"])
        self.assertEqual(list(to_rank), list(right.sum(axis=0)))
        self.assertEqual(list(to_expert), [np.count_nonzero((topk == expert).any(axis=1)) for expert in range(EXPERTS)])
        if case.node == case.ranks:
            self.assertIsNone(to_node)
        else:
            nodes = right.reshape(len(topk), case.ranks // case.node, case.node).any(axis=2)
            self.assertEqual(list(to_node), list(nodes.sum(axis=0)))
        return {
            "num_tokens_per_rank": to_rank,
            "num_tokens_per_rdma_rank": to_node,
            "is_token_in_rank": inside,
            "num_tokens_per_expert": to_expert,
        }

    def check_rows(self, case, rank, received, where):
        rows = case.rows(rank)
        parts = received if case.fp8 else (received,)
        for number, part in enumerate(parts):
            right = np.array([case.sent(number, row) for row in rows], part.dtype).reshape(len(rows), part.shape[1])
            np.testing.assert_array_equal(part[: len(rows)], right, err_msg=f"{where}, part {number}")

    def layer(self, buffer, case, number, alter=None, again=True):
        """One layer, and by its handle one of other tokens."""
        rank, where = buffer.rank, f"rank {buffer.rank}, layer {number}"
        ways, rows = self.layout(buffer, case), case.rows(rank)
        worst, alignment = (len(rows) + 3 if number % 4 == 3 else 0), (1, 8)[number % 2]
        received, index, weights, counts, handle, _ = buffer.dispatch(
            case.x[rank],
            **ways,
            topk_idx=case.topk[rank],
            topk_weights=case.weights[rank],
            expert_alignment=alignment,
            num_worst_tokens=worst,
            config=CONFIG,
        )
        self.check_rows(case, rank, received, where)
        chosen = [case.chosen(rank, row) for row in rows]
        for met, part, dtype in ((index, 0, np.int64), (weights, 1, np.float32)):
            self.assertEqual((met.dtype, met.shape), (dtype, (worst or len(rows), TOPK)), where)
            right = np.array([one[part] for one in chosen], dtype).reshape(-1, TOPK)
            np.testing.assert_array_equal(met[: len(rows)], right, err_msg=where)
        self.assertTrue((index[len(rows) :] == -1).all() and not weights[len(rows) :].any())
        local = EXPERTS // case.ranks
        right = [sum((one[0] == expert).any() for one in chosen) for expert in range(local)]
        self.assertEqual(counts, [] if worst else [-(-count // alignment) * alignment for count in right], where)
        prefix = np.cumsum([np.count_nonzero(case.goes(source, rank)) for source in range(case.ranks)])
        np.testing.assert_array_equal(handle.recv_rank_prefix_sum, prefix)
        self.answer(buffer, case, received, handle, (index, weights), number, where, alter)
        if not again:
            return handle
        case = case.again(number)
        received, *nothing, event = buffer.dispatch(
            case.x[rank], handle=handle, num_worst_tokens=worst, previous_event=buffer.capture(), async_finish=True
        )
        event.current_stream_wait()
        self.assertEqual(nothing, [None] * 4)
        self.check_rows(case, rank, received, f"{where}, again")
        self.answer(buffer, case, received, handle, (index, weights), number + 1, f"{where}, again")
        return handle

    def answer(self, buffer, case, received, handle, chosen, number, where, alter=None):
        rank, count = buffer.rank, handle.num_recv_tokens
        values = deep_ep.dequantise(received)
        out = np.zeros((len(values), HIDDEN), np.uint16)
        for row in range(count):
            out[row] = made(rank * (EXPERTS // case.ranks), values[row], chosen[0][row], chosen[1][row])
        if alter is not None:
            alter(out)
        biases = case.biases[rank][: number % 3]
        bias = None if not biases else biases[0] if len(biases) == 1 else tuple(biases)
        combined, weights, _ = buffer.combine(out, handle, topk_weights=chosen[1], bias=bias)
        np.testing.assert_array_equal(combined, case.combined(rank, biases), err_msg=where)
        np.testing.assert_array_equal(weights, np.where(case.topk[rank] >= 0, case.weights[rank], 0), err_msg=where)

    def test_bf16_and_fp8_between_nodes_across_faults(self):
        job, buffers = start()
        cases = [Case(seed, fp8=seed % 2 == 1) for seed in range(12)]

        def body(rank):
            for number, case in enumerate(cases):
                if rank == 1 and number in (3, 8):
                    job.inject(1, 0, "down" if number == 3 else "up")
                self.layer(buffers[rank], case, number)

        on_all(RANKS, body)
        self.assertGreater(job.failovers(), 0)

    def test_one_node_and_nodes_of_one(self):
        for ranks, node in ((2, None), (2, 1)):
            job, buffers = start(ranks=ranks, node=node)
            self.assertEqual(job.ranks_per_node, node or ranks)
            cases = [Case(seed, fp8=seed % 2 == 0, ranks=ranks, node=job.ranks_per_node) for seed in range(4)]

            def body(rank):
                for number, case in enumerate(cases):
                    self.layer(buffers[rank], case, number)

            on_all(ranks, body)

    def test_tokens_without_experts(self):
        """The default configuration, and no weights."""
        self.addCleanup(deep_ep.Buffer.set_num_sms, deep_ep.Buffer.num_sms)
        deep_ep.Buffer.set_num_sms(4)
        config = deep_ep.Buffer.get_dispatch_config(RANKS)
        self.assertEqual(str(config), "Config(4, 6, 256, 6, 128)")
        _, buffers = start(config)
        case = Case(7)

        def body(rank):
            buffer = buffers[rank]
            received, index, weights, counts, handle, _ = buffer.dispatch(case.x[rank], **self.layout(buffer, case))
            self.assertEqual((index, weights, len(counts)), (None, None, LOCAL))
            self.check_rows(case, rank, received, f"rank {rank}")
            combine = deep_ep.Buffer.get_combine_config(RANKS)
            combined, none, _ = buffer.combine(received, handle, config=combine)
            self.assertIsNone(none)
            parts = [[case.goes(rank, to) for to in range(first, first + LOCALS)] for first in range(0, RANKS, LOCALS)]
            sums = [np.sum(part, axis=0)[:, None].astype(np.float32) * BF16(case.x[rank]) for part in parts]
            right = deep_ep.to_bf16(sum(BF16(deep_ep.to_bf16(of_node)) for of_node in sums))
            np.testing.assert_array_equal(BF16(combined), BF16(right))
            with self.assertRaisesRegex(ValueError, "topk_weights: expected None, got weights"):
                buffer.combine(received, handle, topk_weights=np.zeros((len(received), 1), np.float32))

        on_all(RANKS, body)

    def test_a_row_that_is_altered_is_seen(self):
        """The deliberate break: one channel of one row that one rank gives back."""
        _, buffers = start()
        case, seen = Case(3), []

        def body(rank):
            def alter(rows):
                rows[0, 5] ^= 0x40

            try:
                self.layer(buffers[rank], case, 0, alter if rank == 2 else None, again=False)
            except AssertionError:
                seen.append(rank)

        self.assertTrue(case.rows(2))
        on_all(RANKS, body)
        # The rank that the row's token is from, and nobody else.
        self.assertEqual(seen, [case.rows(2)[0][0]])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_tensors_of_torch(self):
        import torch

        _, buffers = start()
        cases = [Case(1), Case(2, fp8=True)]

        def tensor(array):
            kinds = {"uint16": (np.int16, torch.bfloat16), "uint8": (np.uint8, torch.float8_e4m3fn)}
            bits, kind = kinds.get(array.dtype.name, (array.dtype, None))
            made = torch.from_numpy(array.view(bits))
            return made.view(kind) if kind else made

        def body(rank):
            for case in cases:
                topk, weights = tensor(case.topk[rank]), tensor(case.weights[rank])
                x = tuple(map(tensor, case.x[rank])) if case.fp8 else tensor(case.x[rank])
                to_rank, to_node, to_expert, inside, _ = buffers[rank].get_dispatch_layout(topk, EXPERTS)
                received, index, sums, _, handle, _ = buffers[rank].dispatch(
                    x, None, to_rank, to_node, inside, to_expert, topk, weights, config=CONFIG
                )
                self.assertEqual((index.dtype, sums.dtype), (torch.int64, torch.float32))
                parts = received if case.fp8 else (received,)
                kinds = [part.dtype for part in (x if case.fp8 else (x,))]
                self.assertEqual([part.dtype for part in parts], kinds)
                right = np.array([case.value(row) for row in case.rows(rank)], np.float32).reshape(-1, HIDDEN)
                rows = parts[0].float()
                if case.fp8:
                    rows = rows * parts[1].repeat_interleave(128, dim=1)
                np.testing.assert_array_equal(rows.numpy(), right)
                combined, sums, _ = buffers[rank].combine(rows.to(torch.bfloat16), handle, topk_weights=sums)
                self.assertEqual((combined.dtype, sums.dtype), (torch.bfloat16, torch.float32))

        on_all(RANKS, body)


class Misuse(unittest.TestCase):
    def test_what_cannot_be_is_said_with_what_would_be_right(self):
        job, buffers = start()
        case, buffer = Case(1), buffers[0]
        tokens = len(case.topk[0])
        self.assertGreater(tokens, 1)
        topk, weights = case.topk[0], case.weights[0]
        to_rank, to_node, to_expert, inside, _ = buffer.get_dispatch_layout(topk, EXPERTS)
        ways = {
            "num_tokens_per_rank": to_rank,
            "num_tokens_per_rdma_rank": to_node,
            "is_token_in_rank": inside,
            "num_tokens_per_expert": to_expert,
            "topk_idx": topk,
            "topk_weights": weights,
        }

        def dispatch(x=case.x[0], **more):
            return lambda: buffer.dispatch(x, **(ways | {"config": CONFIG} | more))

        def config(*fields):
            return lambda: deep_ep.Config(*fields)

        other = deep_ep.SoftJob(RANKS, 1 << 20)
        one_lost = inside.copy()
        one_lost[np.argmax(inside.any(axis=1))] = False
        fewer = {"num_tokens_per_rank": one_lost.sum(axis=0).astype(np.int32), "is_token_in_rank": one_lost}
        fewer["num_tokens_per_rdma_rank"] = one_lost.reshape(tokens, NODES, LOCALS).any(axis=2).sum(axis=0).astype(np.int32)
        codes, scales = quantised(BF16(case.x[0]))
        cases = [
            (lambda: deep_ep.SoftJob(4, 1 << 20, ranks_per_node=3), "expected a divisor of 4.*, got 3"),
            (lambda: deep_ep.Buffer(other.group(1), enable_shrink=True), "leaves no rank out"),
            (lambda: buffer.low_latency_dispatch(case.x[0], topk, 16, EXPERTS), "low_latency_mode: expected True"),
            (config(3), "an even number"),
            (config(4, 6, 6), "more to receive than to send"),
            (lambda: CONFIG.get_rdma_buffer_size_hint(100, 4), "multiple of 512"),
            (lambda: buffer.get_dispatch_layout(topk, 9), "expected a multiple of 4.*, got 9"),
            (lambda: buffer.get_dispatch_layout(topk + EXPERTS, EXPERTS), "below 8"),
            (lambda: buffer.get_dispatch_layout(topk.astype(np.int32), EXPERTS), "int64 of 2"),
            (lambda: buffer.get_dispatch_layout(np.zeros((2, 12), np.int64), EXPERTS), "1 to 11"),
            (lambda: buffer.get_dispatch_layout(topk, EXPERTS, allocate_on_comm_stream=True), "async_finish=False"),
            (dispatch(case.x[0].astype(np.float64)), "bfloat16"),
            (dispatch(case.x[0][:, :300]), "multiple of 512"),
            (dispatch(case.x[0][:-1]), "is_token_in_rank: expected "),
            (dispatch((codes, scales[:, :2])), "every 128 channels"),
            (dispatch((codes.astype(np.int32), scales)), "float8_e4m3fn"),
            (dispatch((codes, scales.astype(np.int32))), "float32 of 2"),
            (dispatch((codes,)), "FP8 and its scales"),
            (dispatch(num_tokens_per_rank=None), "get_dispatch_layout"),
            (dispatch(num_tokens_per_rdma_rank=None), "num_tokens_per_rdma_rank: expected .*, got None"),
            (dispatch(num_tokens_per_rank=to_rank + 1), "as is_token_in_rank says"),
            (dispatch(num_tokens_per_rank=to_rank.astype(np.int64)), "int32 of 1"),
            (dispatch(num_tokens_per_rdma_rank=to_node[:1]), "as is_token_in_rank says"),
            (dispatch(num_tokens_per_expert=to_expert[::-1].copy()), "as topk_idx says"),
            (dispatch(is_token_in_rank=inside.astype(np.int8)), "bool of 2"),
            (dispatch(**fewer), "expected True for .*, as topk_idx says"),
            (dispatch(topk_weights=None), "expected both or neither"),
            (dispatch(topk_weights=weights[:, 1:].copy()), "topk_weights"),
            (dispatch(topk_idx=topk[1:]), "as many as x has"),
            (dispatch(topk_idx=topk + EXPERTS), "expected below 8"),
            (dispatch(expert_alignment=0), "1 at least"),
        ]
        for number, (call, part) in enumerate(cases):
            with self.subTest(number, part=part), self.assertRaisesRegex(ValueError, part):
                call()

        # Nothing of all that was sent: a layer is right, and what comes behind it is held against it.
        def body(rank):
            handle = Layers().layer(buffers[rank], case, 0)
            if rank == 0:
                self.refused_behind_a_layer(buffer, case, handle, dispatch)

        on_all(RANKS, body)

    def refused_behind_a_layer(self, buffer, case, handle, dispatch):
        rows = np.zeros((handle.num_recv_tokens, HIDDEN), np.uint16)

        def combine(x=rows, handle=handle, **more):
            return lambda: buffer.combine(x, handle, **more)

        cases = [
            (dispatch(handle=handle), "num_tokens_per_rank: expected None with a handle"),
            (lambda: buffer.dispatch(case.x[0][:-1], handle), "as the handle has"),
            (lambda: buffer.dispatch(np.zeros((1, 1024), np.uint16), handle), "expected 512 channels, as before"),
            (dispatch(config=deep_ep.Config(6, 1, 3, 2, 4)), "num_sms=4"),
            (dispatch(config=deep_ep.Config(4, 1, 3, 2, 3)), "num_max_rdma_chunked_recv_tokens="),
            (dispatch(x=np.zeros((len(case.x[0]), 1024), np.uint16)), "as before"),
            (combine(rows[:-1]), "a row for each that came"),
            (combine(topk_weights=np.zeros((len(rows), 2), np.float32)), "topk_weights"),
            (combine(bias=(rows,) * 3), "two at most"),
            (combine(bias=rows[:1, :512]), "bias: expected "),
        ]
        for number, (call, part) in enumerate(cases):
            with self.subTest(number, part=part), self.assertRaisesRegex(ValueError, part):
                call()

    def test_more_rows_than_there_is_room_for(self):
        """The rank that has no room says so, and the others know it long before their deadline."""
        _, buffers = start(timeout=600)
        case = Case(3)

        def body(rank):
            ways, count = Layers().layout(buffers[rank], case), len(case.rows(rank))
            worst = count - 1 if rank == 2 else count
            call = lambda **more: buffers[rank].dispatch(case.x[rank], **ways, config=CONFIG, **more)
            if rank == 2:
                refusal = f"expected {count} at least, got {worst}"
                with self.assertRaisesRegex(ValueError, refusal):
                    call(num_worst_tokens=worst)
            else:
                with self.assertRaisesRegex(deep_ep.Fault, "rank 2 gave the call up: more rows came than") as raised:
                    # One may have all its rows by then: it is told in what it calls next.
                    call(num_worst_tokens=count)
                    call(num_worst_tokens=count)
                self.assertEqual(raised.exception.peer, 2)
            buffers[rank].clean()
            handle = Layers().layer(buffers[rank], case, 0)
            if rank == 2:
                refusal = f"expected {count} at least, got {worst}"
                with self.assertRaisesRegex(ValueError, refusal):
                    buffers[rank].dispatch(case.x[rank], handle, num_worst_tokens=worst)

        on_all(RANKS, body)

    def test_ranks_that_are_not_configured_alike(self):
        """Whatever is not the same on one rank is an error of all, with who and what, and nobody waits for long."""
        configs = [
            (deep_ep.Config(6, 1, 3, 2, 4), {}, "channels", (3, 2)),
            (deep_ep.Config(4, 1, 3, 1, 4), {}, "slots that one put brings", (1, 2)),
            (deep_ep.Config(4, 1, 3, 2, 6), {}, "slots of a ring between nodes", (6, 4)),
            (deep_ep.Config(4, 1, 4, 2, 4), {}, "slots of a ring inside a node", (4, 3)),
            (CONFIG, {"num_max_tokens_per_rank": 64}, "tokens of a rank", (64, 8192)),
        ]
        for config, options, what, values in configs:
            size = deep_ep.Config(6, 1, 4, 2, 6).get_rdma_buffer_size_hint(2 * HIDDEN, RANKS, ranks_per_node=LOCALS)
            job = deep_ep.SoftJob(RANKS, size, num_qps_per_rank=4, ranks_per_node=LOCALS)
            others = [{}, {}, {}, options]
            buffers = [deep_ep.Buffer(job.group(rank), 0, size, timeout=600, **others[rank]) for rank in range(RANKS)]
            case = Case(3)

            def body(rank):
                ways = Layers().layout(buffers[rank], case)
                for _ in range(2):
                    with self.assertRaises(deep_ep.Differs) as raised:
                        buffers[rank].dispatch(case.x[rank], **ways, config=config if rank == 3 else CONFIG)
                met = raised.exception
                self.assertRegex(met.what, what)
                right = (0, *values[::-1]) if rank == 3 else (3, *values)
                self.assertEqual((met.peer, met.theirs, met.ours), right)
                with self.assertRaisesRegex(ValueError, "give the same on all ranks"):
                    buffers[rank].clean()

            on_all(RANKS, body)

    def test_ranks_that_do_not_call_alike(self):
        """Nothing was sent by then: the next call is right, without cleaning."""
        _, buffers = start(timeout=600)
        case, fp8 = Case(3), Case(3, fp8=True)

        def body(rank):
            buffer = buffers[rank]
            ways, odd = Layers().layout(buffer, case), rank == 1
            weights = {"topk_idx": case.topk[rank], "topk_weights": case.weights[rank]}
            wider = {name: np.concatenate([part, part[:, :1]], axis=1) for name, part in weights.items()}
            calls = [
                (fp8 if odd else case, weights, "8: FP8", (8, 16)),
                (case, {} if odd else weights, "experts and weights", (0, TOPK)),
                (case, wider if odd else weights, "experts and weights", (TOPK + 1, TOPK)),
            ]
            for of, experts, what, values in calls:
                with self.assertRaisesRegex(deep_ep.Differs, what) as raised:
                    buffer.dispatch(of.x[rank], **ways, **experts, config=CONFIG)
                met = raised.exception
                right = (0, *values[::-1]) if odd else (1, *values)
                self.assertEqual((met.peer, met.theirs, met.ours), right)
                Layers().layer(buffer, case, 0)
            # Weights of rows on one rank only: a rank that finds it says so to all.
            received, _, weights, _, handle, _ = buffer.dispatch(case.x[rank], **ways, **weights, config=CONFIG)
            with self.assertRaisesRegex(deep_ep.Differs, "weights of rows") as raised:
                for _ in range(2):
                    buffer.combine(received, handle, topk_weights=weights if odd else None)
            met = raised.exception
            # The others differ with rank 1, or were told so by one of them, and then they are none of the two.
            right = [(0, 1)] if odd else [(1, 0), (None, None)]
            self.assertIn((met.theirs, met.ours), right)
            self.assertTrue(met.peer != rank and met.what.startswith("weights of rows"), (met.peer, met.what))
            buffer.clean()
            Layers().layer(buffer, case, 0)

        on_all(RANKS, body)

    def test_a_rank_that_never_comes_is_a_fault_and_cleaning_mends_the_buffer(self):
        _, buffers = start(timeout=2)
        cases, old = [Case(1), Case(2)], {}
        with self.assertRaisesRegex(RuntimeError, "call a dispatch first"):
            buffers[0].clean()

        def body(rank):
            buffer = buffers[rank]
            old[rank] = Layers().layer(buffer, cases[0], 0)
            if rank != 3:
                rows = np.zeros((old[rank].num_recv_tokens, HIDDEN), np.uint16)
                for _ in range(2):
                    with self.assertRaises(RuntimeError) as raised:
                        Layers().layer(buffer, cases[1], 0)
                self.assertRegex(str(raised.exception), "broken off; call `clean` on all ranks")
                with self.assertRaisesRegex(RuntimeError, "`clean` on all ranks"):
                    buffer.combine(rows, old[rank])

        on_all(RANKS, body)

        def mended(rank):
            buffers[rank].clean()
            with self.assertRaisesRegex(ValueError, "before a cleaning"):
                buffers[rank].dispatch(cases[0].x[rank], old[rank])
            for number, case in enumerate(cases):
                Layers().layer(buffers[rank], case, number)
            buffers[rank].destroy()
            with self.assertRaisesRegex(RuntimeError, "destroyed"):
                Layers().layer(buffers[rank], cases[0], 0)

        on_all(RANKS, mended)


if __name__ == "__main__":
    unittest.main()
