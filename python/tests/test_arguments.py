"""What callers hand in wrongly: a TypeError for another kind of thing, a ValueError for what cannot be, in one style;
after all of it job and buffers are as they were. Needs NumPy alone."""

import importlib.util
import unittest

import numpy as np
import shunt_ep as deep_ep
from test_buffer import EXPERTS, HIDDEN, TOKENS, inputs, on_all, right, size, start
from test_normal import CONFIG, Case, Layers
from test_normal import EXPERTS as NORMAL_EXPERTS
from test_normal import HIDDEN as NORMAL_HIDDEN
from test_normal import start as start_normal

NAN, HUGE, NUMBER = float("nan"), 2**100, 2**20000


class Style(unittest.TestCase):
    def refused(self, cases):
        """Each is refused, as what it must be, with what was met and what would be right."""
        for number, (call, kind, *parts) in enumerate(cases):
            with self.subTest(number, parts=parts):
                with self.assertRaises(Exception) as raised:
                    call()
                text = str(raised.exception)
                self.assertIs(type(raised.exception), kind, text)
                self.assertIn(": expected ", text)
                for part in parts:
                    # `name: value` of a text that reads `name: expected X, got value`.
                    name, _, met = part.partition(": ")
                    found = part in text or met and text.startswith(f"{name}: ") and f", got {met}" in text
                    self.assertTrue(found, f"{part!r} is not in {text!r}")


class Alone(Style):
    """Without a job."""

    def test_jobs(self):
        job = lambda *args, **more: lambda: deep_ep.SoftJob(*args, **more)
        self.refused([
            (job(2, 0), ValueError, "num_rdma_bytes: 0", "a size hint"),
            (job(2, -1), ValueError, "num_rdma_bytes: -1", "0 at least"),
            (job(2, 1 << 46), ValueError, "num_rdma_bytes: 70368744177664", "35184371564544 at most"),
            (job(2, 2**64 - 1), ValueError, "num_rdma_bytes"),
            (job(2, NUMBER), ValueError, "a number of 20001 bits"),
            (job(2, 1e6), TypeError, "num_rdma_bytes: 1000000.0", "a whole number"),
            (job(2, None), TypeError, "num_rdma_bytes: None"),
            (job("2", 4096), TypeError, "ranks: '2' (str)", "2 to 64"),
            (job(True, 4096), TypeError, "ranks: True"),
            (job(-2, 4096), ValueError, "ranks: -2", "2 to 64"),
            (job(2, 4096, rails=9), ValueError, "rails: 9", "1 to 8"),
            (job(2, 4096, num_qps_per_rank=0), ValueError, "num_qps_per_rank: 0", "1 to 64"),
            (job(2, 4096, seed=-1), ValueError, "seed: -1", "0 at least"),
            (job(2, 4096, seed=2**64), ValueError, "seed: 18446744073709551616", "18446744073709551615 at most"),
            (job(2, 4096, ranks_per_node=0), ValueError, "ranks_per_node: 0", "1 to 32"),
            (job(4, 4096, ranks_per_node="2"), TypeError, "ranks_per_node: '2'"),
            (job(4, 4096, ranks_per_node=3), ValueError, "ranks_per_node: 3", "a divisor of 4"),
        ])

    def test_sizes_and_configurations(self):
        hint = lambda *args: lambda: deep_ep.Buffer.get_low_latency_rdma_size_hint(*args)
        config = lambda *args: lambda: deep_ep.Config(*args)
        rdma = lambda *args, **more: lambda: CONFIG.get_rdma_buffer_size_hint(*args, **more)
        self.refused([
            (hint(0, 512, 2, 4), ValueError, "num_max_dispatch_tokens_per_rank: 0", "1 at least"),
            (hint(-1, 512, 2, 4), ValueError, "num_max_dispatch_tokens_per_rank: -1"),
            (hint(4, 500, 2, 4), ValueError, "hidden: 500", "a multiple of 512"),
            (hint(4, 512.0, 2, 4), TypeError, "hidden: 512.0"),
            (hint(4, 512, 0, 4), ValueError, "num_ranks: 0", "1 to 1024"),
            (hint(4, 512, 2, 5), ValueError, "num_experts: 5", "a multiple of 2"),
            (hint(4, 512, 2, HUGE), ValueError, f"num_experts: {HUGE}", "4294967295 at most"),
            (hint(4, 512, 2, None), TypeError, "num_experts: None"),
            (config("6"), TypeError, "num_sms: '6' (str)", "a whole number"),
            (config(5), ValueError, "num_sms: 5", "an even number"),
            (config(-2), ValueError, "num_sms: -2", "2 to"),
            (config(4, 0), ValueError, "num_max_nvl_chunked_send_tokens: 0", "1 to"),
            (config(4, 6, 6), ValueError, "num_max_nvl_chunked_recv_tokens=6", "more to receive than to send"),
            (config(4, 6, 64, 2.5), TypeError, "num_max_rdma_chunked_send_tokens: 2.5"),
            (config(4, 6, 64, 6, 2**32), ValueError, "num_max_rdma_chunked_recv_tokens: 4294967296"),
            (rdma(1024, 0), ValueError, "num_ranks: 0", "1 to 1024"),
            (rdma(1024, -8), ValueError, "num_ranks: -8"),
            (rdma(1024, "8"), TypeError, "num_ranks: '8'"),
            (rdma(1023, 8), ValueError, "hidden_bytes: 1023", "a multiple of 512"),
            (rdma(0, 8), ValueError, "hidden_bytes: 0"),
            (rdma(HUGE, 8), ValueError, "hidden_bytes"),
            (rdma(1024, 8, ranks_per_node=5), ValueError, "ranks_per_node: 5", "a divisor of 8"),
            (lambda: CONFIG.get_nvl_buffer_size_hint(1024, 0), ValueError, "num_ranks: 0"),
            (lambda: deep_ep.Buffer.get_dispatch_config(0), ValueError, "num_ranks: 0"),
            (lambda: deep_ep.Buffer.get_combine_config(None), TypeError, "num_ranks: None"),
            (lambda: deep_ep.Buffer.set_num_sms(7), ValueError, "new_num_sms: 7", "an even number"),
            (lambda: deep_ep.Buffer.set_num_sms("8"), TypeError, "new_num_sms: '8'"),
        ])
        self.assertEqual(deep_ep.Buffer.num_sms, 20)
        self.assertGreater(rdma(np.int64(1024), np.uint8(8))(), 0)

    def test_numbers_and_events(self):
        codes, scales = np.zeros((2, 256), np.uint8), np.zeros((2, 2), np.float32)
        self.refused([
            (lambda: deep_ep.to_bf16("1"), TypeError, "values: '1' (str)"),
            (lambda: deep_ep.to_bf16([[1], [2, 3]]), TypeError, "values"),
            (lambda: deep_ep.to_bf16(np.zeros(2, complex)), ValueError, "values: complex128"),
            (lambda: deep_ep.from_bf16(np.zeros(2, np.float32)), ValueError, "bits: float32", "bfloat16"),
            (lambda: deep_ep.from_bf16([0, 1 << 16]), ValueError, "bits: 0 to 65536", "0 to 65535"),
            (lambda: deep_ep.from_bf16(None), TypeError, "bits: None"),
            (lambda: deep_ep.from_fp8(np.array([300])), ValueError, "codes: 300 to 300", "0 to 255"),
            (lambda: deep_ep.from_fp8(scales), ValueError, "codes: float32", "float8_e4m3fn"),
            (lambda: deep_ep.dequantise((codes,)), ValueError, "a tuple of 1"),
            (lambda: deep_ep.dequantise((codes, scales[:, :1])), ValueError, "scales: (2, 1)", "(2, 2)"),
            (lambda: deep_ep.dequantise((codes, scales.astype(np.float64))), ValueError, "scales: float64"),
            (lambda: deep_ep.EventOverlap(3), TypeError, "event: 3", "an EventHandle"),
            (lambda: deep_ep.EventOverlap().current_stream_wait(), ValueError, "async_finish=True"),
        ])
        self.assertEqual(deep_ep.from_bf16([0x3F80]).tolist(), [1.0])
        self.assertEqual(deep_ep.dequantise((codes, scales)).shape, (2, 256))


class Buffers(Style):
    def test_what_a_buffer_is_made_with(self):
        job = deep_ep.SoftJob(2, size(2), num_qps_per_rank=2)
        make = lambda group=job.group(0), **more: lambda: deep_ep.Buffer(group, **more)
        self.refused([
            (make(None), TypeError, "group: None", "SoftJob.group"),
            (make(job), TypeError, "group: ", "SoftJob.group"),
            (make(deep_ep.Group(job, 0)), ValueError, "group: one that was made by hand"),
            (lambda: deep_ep.Group(3, 0), TypeError, "job: 3", "a SoftJob"),
            (make(num_rdma_bytes=-1), ValueError, "num_rdma_bytes: -1"),
            (make(num_rdma_bytes=size(2) + 1), ValueError, "num_rdma_bytes", f"{size(2)} at most"),
            (make(num_nvl_bytes="0"), TypeError, "num_nvl_bytes: '0'"),
            (make(num_qps_per_rank=0), ValueError, "num_qps_per_rank: 0"),
            (make(low_latency_mode="no"), TypeError, "low_latency_mode: 'no'", "True or False"),
            (make(low_latency_mode=True), ValueError, "num_rdma_bytes: 0", "1 or more", "get_low_latency_rdma_size_hint"),
            (make(enable_shrink=True), ValueError, "enable_shrink: True", "expected False"),
            (make(absolute_signals=2), TypeError, "absolute_signals: 2", "True or False"),
            (make(timeout=NAN), ValueError, "timeout: nan", "0.001 to 1e9"),
            (make(timeout=-1), ValueError, "timeout: -1"),
            (make(timeout=0), ValueError, "timeout: 0"),
            (make(timeout=float("inf")), ValueError, "timeout: inf"),
            (make(timeout=HUGE), ValueError, "timeout"),
            (make(timeout="100"), TypeError, "timeout: '100'", "seconds"),
            (make(timeout=None), TypeError, "timeout: None"),
            (make(num_max_tokens_per_rank=0), ValueError, "num_max_tokens_per_rank: 0", "1 to 1048576"),
            (make(num_max_tokens_per_rank=2**32 - 1), ValueError, "num_max_tokens_per_rank"),
            (lambda: job.group(-1), ValueError, "rank: -1", "0 to 1"),
            (lambda: job.group("0"), TypeError, "rank: '0'"),
            (lambda: job.inject(0, 2, "down"), ValueError, "rail: 2", "0 to 1"),
            (lambda: job.inject(0, 0, 3), TypeError, "fault: 3", "down=20ms"),
        ])
        # None of them was the rank's buffer, of which there is one.
        made = make(low_latency_mode=np.True_, timeout=np.float32(5), num_rdma_bytes=size(2))()
        self.assertEqual((made.low_latency_mode, made.num_rdma_bytes), (True, size(2)))
        self.refused([(make(), ValueError, "rank 0", "has had its buffer")])

    def test_a_refused_first_call_leaves_the_buffer_without_sizes(self):
        _, buffers = start()
        x, topk, weights = inputs(1)
        buffer, other = buffers

        def dispatch(x=x, topk=topk, tokens=TOKENS, experts=EXPERTS, **more):
            return lambda: buffer.low_latency_dispatch(x, topk, tokens, experts, **more)

        stats = lambda dtype, *shape: {"cumulative_local_expert_recv_stats": np.zeros(shape, dtype)}
        still = np.zeros(EXPERTS // 2, np.int32)
        still.flags.writeable = False
        self.refused([
            (dispatch(x=None), TypeError, "x: None"),
            (dispatch(x="tokens"), TypeError, "x: 'tokens'"),
            (dispatch(x=x.astype(">f4")), ValueError, "x: >f4"),
            (dispatch(x=np.zeros((TOKENS, HIDDEN), ">u2")), ValueError, "x: >u2", "bfloat16"),
            (dispatch(x=x[:, :300]), ValueError, "hidden: 300", "a multiple of 512"),
            (dispatch(x=np.zeros((TOKENS, 0), np.float32)), ValueError, "hidden: 0"),
            # Sizes that can be, and that this call does not fit: they must not become the buffer's.
            (dispatch(tokens=TOKENS - 1), ValueError, "x: 4 tokens", "3 tokens at most"),
            (dispatch(experts=2), ValueError, "topk_idx: 3", "below 2"),
            (dispatch(topk=np.zeros((TOKENS, 12), np.int64)), ValueError, "topk_idx: 12 experts", "1 to 11"),
            (dispatch(topk=np.zeros((TOKENS, 0), np.int64)), ValueError, "topk_idx: 0 experts"),
            (dispatch(topk=[[0, 1], [2]]), TypeError, "topk_idx"),
            (dispatch(tokens=0), ValueError, "num_max_dispatch_tokens_per_rank: 0"),
            (dispatch(tokens=4.0), TypeError, "num_max_dispatch_tokens_per_rank: 4.0"),
            (dispatch(experts=5), ValueError, "num_experts: 5", "a multiple of 2"),
            (dispatch(experts=-4), ValueError, "num_experts: -4"),
            (dispatch(use_fp8="yes"), TypeError, "use_fp8: 'yes'"),
            (dispatch(use_ue8m0=True), ValueError, "use_ue8m0: expected round_scale=True"),
            (dispatch(return_recv_hook=None), TypeError, "return_recv_hook: None"),
            (dispatch(async_finish=[]), TypeError, "async_finish: []"),
            (dispatch(dispatch_wait_recv_cost_stats=x), ValueError, "dispatch_wait_recv_cost_stats", "int64 of (2,)"),
            (dispatch(**stats(np.int32, 3)), ValueError, "cumulative_local_expert_recv_stats: int32 of (3,)", "(2,)"),
            (dispatch(**stats(np.float32, 2)), ValueError, "float32 of (2,)", "int32 or int64 of (2,)"),
            (dispatch(cumulative_local_expert_recv_stats=still), ValueError, "cannot be written"),
            (dispatch(cumulative_local_expert_recv_stats=[0, 0]), TypeError, "cumulative_local_expert_recv_stats"),
            (lambda: buffer.clean_low_latency_buffer(TOKENS, HIDDEN, "4"), TypeError, "num_experts: '4'"),
            (lambda: buffer.clean_low_latency_buffer(TOKENS, HIDDEN, 5), ValueError, "num_experts: 5"),
            (lambda: buffer.get_next_low_latency_combine_buffer(None), TypeError, "handle: None"),
        ])
        for tokens, part in ((2**31, "rows of an expert: expected at most"), (2**12, "make the heap larger")):
            with self.assertRaisesRegex(ValueError, part):
                dispatch(tokens=tokens)()
        with self.assertRaisesRegex(RuntimeError, "no sizes yet"):
            buffer.low_latency_query_mask_epoch()

        # A handle of the other rank's does not make them either.
        sent = other.low_latency_dispatch(x, topk, TOKENS, EXPERTS, use_fp8=False, return_recv_hook=True)
        self.refused([
            (lambda: buffer.low_latency_combine(x, topk, weights, sent[2]), ValueError, "handle: another buffer's"),
        ])
        with self.assertRaisesRegex(RuntimeError, "no sizes yet"):
            buffer.low_latency_query_mask_epoch()
        mine = dispatch(use_fp8=False, return_recv_hook=True)()
        self.behind_a_dispatch(buffers, mine, sent, (x, topk, weights))

    def behind_a_dispatch(self, buffers, mine, theirs, given):
        (x, topk, weights), made = given, np.zeros((EXPERTS // 2, TOKENS * 2, HIDDEN), np.float32)
        mine[-1](), theirs[-1]()
        handle, out = mine[2], np.zeros((TOKENS, HIDDEN), np.uint16)
        buffer, status = buffers[0], np.zeros(2, np.int32)

        def combine(made=made, topk=topk, weights=weights, handle=handle, **more):
            return lambda: buffer.low_latency_combine(made, topk, weights, handle, **more)

        self.refused([
            (combine(made=None), TypeError, "x: None"),
            (combine(made=made[:1]), ValueError, "x: (1, 8, 512)", "(2, 8, 512)"),
            (combine(topk=topk[:, ::-1]), ValueError, "topk_idx: another one"),
            (combine(weights=weights.T.copy()), ValueError, "topk_weights: (2, 4)", "(4, 2)"),
            (combine(weights=weights.astype(np.float64)), ValueError, "topk_weights: float64"),
            (combine(handle=4), TypeError, "handle: 4", "low_latency_dispatch"),
            (combine(handle=(None,) * 5), ValueError, "handle: one that no dispatch has made"),
            (combine(out=out[1:]), ValueError, "out: uint16 of (3, 512)", "bfloat16 or uint16 or int16 of (4, 512)"),
            (combine(out=out.astype(np.float32)), ValueError, "out: float32"),
            (combine(out=out.tolist()), TypeError, "out: "),
            (combine(use_logfmt="maybe"), TypeError, "use_logfmt: 'maybe'"),
            (combine(use_logfmt=True, zero_copy=True), ValueError, "use_logfmt: True", "False with zero_copy"),
            (combine(zero_copy="maybe"), TypeError, "zero_copy: 'maybe'"),
            (combine(combine_wait_recv_cost_stats=0), TypeError, "combine_wait_recv_cost_stats: 0", "an array"),
            (lambda: buffer.low_latency_query_mask_buffer(status[:1]), ValueError, "mask_status: int32 of (1,)"),
            (lambda: buffer.low_latency_query_mask_buffer(None), TypeError, "mask_status: None"),
            (lambda: buffer.low_latency_update_mask_buffer(2, True), ValueError, "rank_to_mask: 2", "0 to 1"),
            (lambda: buffer.low_latency_update_mask_buffer(1, "on"), TypeError, "mask: 'on'"),
        ])

        # Nothing of all that was sent: the layer ends as if nobody had asked.
        results = [out.view(np.int16), None]

        def body(rank):
            received, counts, handle, _, _ = (mine, theirs)[rank]
            made = np.zeros((EXPERTS // 2, TOKENS * 2, HIDDEN), np.float32)
            for local, count in enumerate(counts):
                made[local, :count] = deep_ep.from_bf16(received[local, :count]) * (rank * 2 + local + 1)
            combined, _, _ = buffers[rank].low_latency_combine(made, topk, weights, handle, out=results[rank])
            np.testing.assert_array_equal(deep_ep.from_bf16(combined), right(x, topk, weights))

        on_all(2, body)
        np.testing.assert_array_equal(deep_ep.from_bf16(out), right(x, topk, weights))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_tensors_of_torch(self):
        import torch

        _, buffers = start()
        x, topk, _ = inputs(1)
        tokens = torch.from_numpy(x).to(torch.bfloat16)

        def dispatch(x=tokens, **more):
            return lambda: buffers[0].low_latency_dispatch(x, torch.from_numpy(topk), TOKENS, EXPERTS, **more)

        stats = "cumulative_local_expert_recv_stats"
        self.refused([
            (dispatch(torch.float32), TypeError, "x: torch.float32"),
            (dispatch(tokens.to("meta")), ValueError, "x: a tensor on meta", "the CPU"),
            (dispatch(tokens.to(torch.float8_e5m2)), ValueError, "x: torch.float8_e5m2"),
            (dispatch(tokens.to_sparse()), ValueError, "torch.sparse_coo", "dense"),
            (dispatch(**{stats: torch.zeros(2)}), ValueError, f"{stats}: float32 of (2,)", "int32"),
        ])
        np.testing.assert_array_equal(deep_ep.from_bf16(deep_ep.to_bf16(tokens)), x)
        np.testing.assert_array_equal(deep_ep.from_bf16(tokens), x)


class Normal(Style):
    def test_a_refused_first_call_leaves_the_buffer_without_sizes(self):
        _, buffers = start_normal()
        case, buffer = Case(1), buffers[0]
        topk, weights = case.topk[0], case.weights[0]
        to_rank, to_node, to_expert, inside, _ = buffer.get_dispatch_layout(topk, NORMAL_EXPERTS)
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

        layout = lambda *args, **more: lambda: buffer.get_dispatch_layout(*args, **more)
        none, less = {"topk_idx": None, "topk_weights": None}, to_expert.copy()
        less[0] = -1
        self.refused([
            (layout(topk, "8"), TypeError, "num_experts: '8'"),
            (layout(topk, 0), ValueError, "num_experts: 0"),
            (layout(topk, 2**40), ValueError, "num_experts: 1099511627776", "1 to 4096"),
            (layout(None, 8), TypeError, "topk_idx: None"),
            (layout(topk, 8, previous_event=1), TypeError, "previous_event: 1", "an EventOverlap"),
            (layout(topk, 8, async_finish="no"), TypeError, "async_finish: 'no'"),
            (layout(topk, 8, allocate_on_comm_stream=3), TypeError, "allocate_on_comm_stream: 3"),
            (dispatch(config="x"), TypeError, "config: 'x' (str)", "a Config"),
            (dispatch(config=(4, 1, 3, 2, 4)), TypeError, "config: (4, 1, 3, 2, 4) (tuple)"),
            (dispatch(x=None), TypeError, "x: None"),
            (dispatch(x=[case.x[0], case.x[0][:1]]), TypeError, "x: "),
            (dispatch(x=case.x[0][:, :0]), ValueError, "x: 0 channels"),
            (dispatch(handle=3), TypeError, "handle: 3", "one of dispatch"),
            (dispatch(expert_alignment=2.5), TypeError, "expert_alignment: 2.5"),
            (dispatch(expert_alignment=-1), ValueError, "expert_alignment: -1", "1 at least"),
            (dispatch(num_worst_tokens=-1), ValueError, "num_worst_tokens: -1", "0 to 32768"),
            (dispatch(num_worst_tokens=10**15), ValueError, "num_worst_tokens: 1000000000000000"),
            (dispatch(num_tokens_per_expert=less, **none), ValueError, "num_tokens_per_expert: -1 to"),
            (dispatch(num_tokens_per_expert=to_expert + 99, **none), ValueError, f"0 to {len(topk)}, the tokens of x"),
            (dispatch(num_tokens_per_expert=to_expert[:-1]), ValueError, "num_tokens_per_expert, its length: 7"),
            (lambda: buffer.combine(case.x[0], None), TypeError, "handle: None", "one of dispatch"),
        ])
        with self.assertRaisesRegex(RuntimeError, "no sizes yet"):
            buffer.clean()

        # A layer is right, and what comes behind it is held against it.
        def body(rank):
            handle = Layers().layer(buffers[rank], case, 0)
            if rank == 0:
                rows = np.zeros((handle.num_recv_tokens, NORMAL_HIDDEN), np.uint16)
                few = max(handle.num_recv_tokens - 1, 1)
                self.assertGreater(handle.num_recv_tokens, few)
                self.refused([
                    (lambda: buffer.dispatch(case.x[0], handle, num_worst_tokens=few), ValueError, "at least"),
                    (lambda: buffer.dispatch(case.x[0], handle, config=4), TypeError, "config: 4", "a Config"),
                    (lambda: buffer.combine(rows, handle, config=4), TypeError, "config: 4"),
                    (lambda: buffer.combine((rows, rows), handle), TypeError, "FP8 is for a dispatch"),
                    (lambda: buffer.combine(rows, handle, bias="b"), TypeError, "bias: 'b'"),
                    (lambda: buffer.combine(rows, handle, async_finish=2), TypeError, "async_finish: 2"),
                ])
            Layers().layer(buffers[rank], case, 1)

        on_all(4, body)

    def test_more_tokens_than_the_buffer_was_made_for(self):
        _, buffers = start_normal(num_max_tokens_per_rank=2)
        case = Case(1)
        ways = Layers().layout(buffers[0], case)
        self.assertGreater(len(case.x[0]), 2)
        self.refused([
            (
                lambda: buffers[0].dispatch(case.x[0], **ways, config=CONFIG),
                ValueError,
                f"x: {len(case.x[0])} tokens",
                "num_max_tokens_per_rank",
            ),
        ])


if __name__ == "__main__":
    unittest.main()
