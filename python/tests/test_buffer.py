"""The installed wheel: layers on ranks that are threads, hooks, formats, misuse, destruction. Needs NumPy alone;
what is of tensors is skipped, and counted as skipped, where torch is not installed."""

import gc
import importlib.util
import threading
import unittest

import numpy as np
import shunt_ep as deep_ep

TOKENS, HIDDEN, EXPERTS = 4, 512, 4


def size(ranks):
    return deep_ep.Buffer.get_low_latency_rdma_size_hint(TOKENS, HIDDEN, ranks, EXPERTS)


def start(ranks=2, ranks_per_node=1, **options):
    job = deep_ep.SoftJob(ranks, size(ranks), num_qps_per_rank=EXPERTS // ranks, ranks_per_node=ranks_per_node)
    return job, [deep_ep.Buffer(job.group(r), 0, size(ranks), low_latency_mode=True, **options) for r in range(ranks)]


def inputs(seed):
    random = np.random.default_rng(seed)
    x = random.integers(-7, 8, (TOKENS, HIDDEN)).astype(np.float32)
    topk = np.argsort(random.random((TOKENS, EXPERTS)))[:, :2].copy()
    topk[seed % TOKENS, 1] = -1
    return x, topk, np.full(topk.shape, 0.5, np.float32)


def right(x, topk, weights):
    part = lambda k: np.where(topk[:, [k]] >= 0, x * (topk[:, [k]] + 1) * weights[:, [k]], 0)
    return part(0) + part(1)


def experts(rank, received, counts, into):
    per_rank = len(counts)
    rows = deep_ep.dequantise(received)
    into[:] = 0
    for local, count in enumerate(counts):
        into[local, :count] = rows[local, :count] * (rank * per_rank + local + 1)


def on_all(ranks, body):
    """Runs `body` on a thread each; what the first of them raised is raised here."""
    raised = []

    def run(rank):
        try:
            body(rank)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if raised:
        raise raised[0]


class Layers(unittest.TestCase):
    def layer(self, buffer, rank, seed, zero_copy=False, **options):
        x, topk, weights = inputs(seed * 16 + rank)
        received, counts, handle, event, hook = buffer.low_latency_dispatch(
            x, topk, TOKENS, EXPERTS, return_recv_hook=True, **options
        )
        self.assertIsNone(event.event)
        hook()
        made = np.zeros((EXPERTS // buffer.group_size, TOKENS * buffer.group_size, HIDDEN), np.float32)
        experts(rank, received, counts, made)
        if zero_copy:
            buffer.get_next_low_latency_combine_buffer(handle)[:] = deep_ep.to_bf16(made)
        out = np.zeros((TOKENS, HIDDEN), np.uint16)
        combined, _, none = buffer.low_latency_combine(made, topk, weights, handle, zero_copy=zero_copy, out=out)
        self.assertIsNone(none)
        self.assertIs(combined, out)
        return deep_ep.from_bf16(combined), right(x, topk, weights)

    def test_every_format_on_four_ranks_across_faults(self):
        job, buffers = start(4)
        formats = [
            {"use_fp8": False},
            {"use_fp8": True},
            {"use_fp8": True, "round_scale": True},
            {"use_fp8": True, "round_scale": True, "use_ue8m0": True},
        ]

        def body(rank):
            for seed in range(12):
                if rank == 1 and seed in (3, 7):
                    job.inject(1, 0, "down" if seed == 3 else "up")
                options = formats[seed % 4]
                met, want = self.layer(buffers[rank], rank, seed, zero_copy=seed % 3 == 2, **options)
                # FP8 keeps three bits behind the leading one: a sixteenth of each of two terms at most.
                bound = np.abs(want).max() / 8 if options["use_fp8"] else 0
                np.testing.assert_allclose(met, want, rtol=0, atol=bound, err_msg=f"rank {rank}, layer {seed}")

        on_all(4, body)
        self.assertGreater(job.failovers(), 0)

    def layers_across(self, fault, rails, **options):
        """Layers of four ranks while this happens to so many rails of rank 1; its job."""
        job, buffers = start(4, **options)

        def body(rank):
            for seed in range(12):
                if rank == 1 and seed == 3:
                    [job.inject(1, rail, fault) for rail in range(rails)]
                met, want = self.layer(buffers[rank], rank, seed, zero_copy=seed % 3 == 2, use_fp8=False)
                np.testing.assert_array_equal(met, want, err_msg=f"rank {rank}, layer {seed}")
            buffers[rank].clean_low_latency_buffer(TOKENS, HIDDEN, EXPERTS)

        on_all(4, body)
        return job

    def test_logfmt_across_faults(self):
        job, buffers = start(4)

        def body(rank):
            for seed in range(12):
                if rank == 1 and seed in (3, 7):
                    job.inject(1, 0, "down" if seed == 3 else "up")
                # Odd ones travel as BF16 in half of their groups: those reach 1.
                scale = np.where(seed % 2 and np.arange(HIDDEN) // 128 % 2, 1.0, 0.02).astype(np.float32)
                x = np.random.default_rng(seed * 16 + rank).normal(size=(TOKENS, HIDDEN)).astype(np.float32) * scale
                x = deep_ep.from_bf16(deep_ep.to_bf16(x))
                topk, weights = inputs(seed * 16 + rank)[1:]
                self.logfmt_layer(buffers[rank], (x, topk, weights), f"rank {rank}, layer {seed}")

        on_all(4, body)
        self.assertGreater(job.failovers(), 0)

    def logfmt_layer(self, buffer, given, said):
        """A layer whose experts change nothing; held against DeepEP's bound for BF16."""
        x, topk, weights = given
        received, _, handle, _, hook = buffer.low_latency_dispatch(
            x, topk, TOKENS, EXPERTS, use_fp8=False, return_recv_hook=True
        )
        hook()
        combined, _, hook = buffer.low_latency_combine(
            received, topk, weights, handle, use_logfmt=True, return_recv_hook=True
        )
        hook()
        met = deep_ep.from_bf16(combined).astype(np.float64)
        want = x.astype(np.float64) * np.where(topk >= 0, weights, 0).sum(axis=1, keepdims=True)
        apart = 1 - 2 * (met * want).sum() / (met * met + want * want).sum()
        self.assertLess(apart, 1e-5, said)
        # Steps of 2^32 in 510 at most: half of one, and half a step of BF16.
        np.testing.assert_allclose(met, want, rtol=0.022 + 1 / 256, atol=np.abs(want).max() / 2**32, err_msg=said)
        if np.abs(x).max() < 1:
            self.assertFalse(np.array_equal(met, want), f"{said}: what came is not rounded, so it was no LogFMT")

    def test_what_stays_on_a_node_outlives_all_nics(self):
        self.assertEqual(self.layers_across("down", 2, ranks_per_node=4).failovers(), 0)

    def test_half_of_it_by_nic(self):
        self.assertGreater(self.layers_across("down", 1, ranks_per_node=2).failovers(), 0)

    def test_without_nvlink_ranks_of_a_node_send_by_nic(self):
        options = {"ranks_per_node": 4, "allow_nvlink_for_low_latency_mode": False}
        self.assertGreater(self.layers_across("down", 1, **options).failovers(), 0)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_tensors_of_torch(self):
        import torch

        _, buffers = start()

        def body(rank):
            for seed, use_fp8 in ((1, False), (2, True)):
                x, topk, weights = inputs(seed * 16 + rank)
                tensors = torch.from_numpy(x).to(torch.bfloat16), torch.from_numpy(topk), torch.from_numpy(weights)
                received, counts, handle, _, hook = buffers[rank].low_latency_dispatch(
                    *tensors[:2], TOKENS, EXPERTS, use_fp8=use_fp8, return_recv_hook=True
                )
                hook()
                self.assertIsInstance(counts, torch.Tensor)
                if use_fp8:
                    self.assertEqual(received[0].dtype, torch.float8_e4m3fn)
                    rows = received[0].float().unflatten(-1, (-1, 128)) * received[1].unsqueeze(-1)
                    rows = rows.flatten(-2)
                else:
                    self.assertEqual(received.dtype, torch.bfloat16)
                    rows = received.float()
                made = torch.zeros_like(rows)
                for local, count in enumerate(counts.tolist()):
                    made[local, :count] = rows[local, :count] * (rank * len(counts) + local + 1)
                out = torch.zeros((TOKENS, HIDDEN), dtype=torch.bfloat16)
                combined, _, _ = buffers[rank].low_latency_combine(
                    made.to(torch.bfloat16), *tensors[1:], handle, out=out
                )
                self.assertIs(combined, out)
                want = right(x, topk, weights)
                bound = np.abs(want).max() / 8 if use_fp8 else 0
                np.testing.assert_allclose(out.float().numpy(), want, rtol=0, atol=bound)

        on_all(2, body)

    def test_ranks_of_one_thread_send_first_and_receive_later(self):
        _, buffers = start()
        stats = [np.zeros(EXPERTS // 2, np.int32) for _ in buffers]
        sent = [
            buffer.low_latency_dispatch(
                inputs(r)[0],
                inputs(r)[1],
                TOKENS,
                EXPERTS,
                cumulative_local_expert_recv_stats=stats[r],
                use_fp8=False,
                return_recv_hook=True,
                async_finish=True,
            )
            for r, buffer in enumerate(buffers)
        ]
        for _, _, _, event, hook in sent:
            event.current_stream_wait()
            hook()
            with self.assertRaisesRegex(RuntimeError, "called once"):
                hook()
        chosen = np.concatenate([inputs(r)[1].reshape(-1) for r in range(2)])
        for r, (_, counts, handle, _, _) in enumerate(sent):
            want = [np.count_nonzero(chosen == r * 2 + local) for local in range(2)]
            self.assertEqual((list(counts), list(stats[r])), (want, want))
            ranges = handle[1]
            self.assertEqual(list((ranges & 0xFFFFFFFF).sum(axis=1)), want)

    def test_bytes_that_a_nic_spoils_are_seen(self):
        """The deliberate break: what the other tests hold equal would differ."""
        job, buffers = start(timeout=5)
        seen = []

        def body(rank):
            for seed in range(8):
                x, topk, weights = inputs(seed)
                if rank == 1:
                    job.inject(1, 0, "corrupt")
                received, counts, handle, _, _ = buffers[rank].low_latency_dispatch(
                    x, topk, TOKENS, EXPERTS, use_fp8=False
                )
                rows = deep_ep.dequantise(received)
                for local, count in enumerate(counts):
                    for row in range(count):
                        seen.append(np.array_equal(rows[local, row], x[handle[0][local, row] % TOKENS]))
                # The one that is ahead may have the byte spoiled in its combine instead.
                combined, _, _ = buffers[rank].low_latency_combine(received, topk, weights, handle)
                same = sum(np.where(topk[:, [k]] >= 0, x * weights[:, [k]], 0) for k in range(2))
                seen.append(np.array_equal(deep_ep.from_bf16(combined), same))

        try:
            on_all(2, body)
        except deep_ep.Fault:
            seen.append(False)
        self.assertIn(False, seen)


class Misuse(unittest.TestCase):
    def test_what_cannot_be_is_said_with_what_would_be_right(self):
        job, buffers = start()
        x, topk, weights = inputs(1)
        buffer = buffers[0]

        def dispatch(x=x, topk=topk, tokens=TOKENS, experts=EXPERTS, **more):
            return lambda: buffer.low_latency_dispatch(x, topk, tokens, experts, **more)

        cases = [
            (lambda: deep_ep.SoftJob(1, 1 << 20), "2 to 64"),
            (lambda: deep_ep.Buffer(job.group(0), 0, 1, low_latency_mode=True), "has had its buffer"),
            (lambda: job.inject(0, 7, "down"), "0 to 1"),
            (lambda: job.inject(0, 0, "dwon"), "dwon"),
            (lambda: job.inject(0, 0, "peer-killed"), "whole PE"),
            (lambda: job.group(2), "0 to 1"),
            (dispatch(x=x.astype(np.float64)), "bfloat16"),
            (dispatch(x=x[0]), "expected 2"),
            (dispatch(topk=topk.astype(np.int32)), "int64"),
            (dispatch(topk=topk[:2]), "as many as x has"),
            (dispatch(topk=topk + EXPERTS), "below 4"),
            (dispatch(use_ue8m0=True), "round_scale"),
            (dispatch(dispatch_wait_recv_cost_stats=x), "int64 of"),
        ]
        for call, part in cases:
            with self.assertRaisesRegex(ValueError, part):
                call()
        _, _, handle, _, hook = dispatch(return_recv_hook=True)()
        with self.assertRaisesRegex(ValueError, "as before"):
            dispatch(tokens=TOKENS + 1)()
        with self.assertRaisesRegex(RuntimeError, "call its hook first"):
            buffer.low_latency_combine(x, topk, weights, handle)
        # A refusal has lost nothing: the other rank's half, and both are received.
        other = buffers[1].low_latency_dispatch(x, topk, TOKENS, EXPERTS, return_recv_hook=True)
        hook(), other[-1]()

    def test_a_rank_that_never_comes_is_a_fault_and_cleaning_mends_the_buffer(self):
        _, buffers = start(timeout=3)
        x, topk, weights = inputs(2)
        with self.assertRaises(deep_ep.Fault) as raised:
            buffers[0].low_latency_dispatch(x, topk, TOKENS, EXPERTS)
        self.assertEqual(raised.exception.peer, 1)
        self.assertRegex(str(raised.exception), "receiving.*deadline")
        with self.assertRaisesRegex(RuntimeError, "clean_low_latency_buffer"):
            buffers[0].low_latency_dispatch(x, topk, TOKENS, EXPERTS)

        def body(rank):
            buffers[rank].clean_low_latency_buffer(TOKENS, HIDDEN, EXPERTS)
            received, _, handle, _, _ = buffers[rank].low_latency_dispatch(x, topk, TOKENS, EXPERTS, use_fp8=False)
            combined, _, _ = buffers[rank].low_latency_combine(received, topk, weights, handle)
            half = 0.5 * x * (topk >= 0).sum(axis=1, keepdims=True)
            np.testing.assert_array_equal(deep_ep.from_bf16(combined), half)

        on_all(2, body)

    def test_masks(self):
        _, buffers = start()
        status = np.zeros(2, np.int32)
        with self.assertRaisesRegex(RuntimeError, "no sizes"):
            buffers[0].low_latency_query_mask_buffer(status)
        on_all(2, lambda rank: buffers[rank].clean_low_latency_buffer(TOKENS, HIDDEN, EXPERTS))
        buffers[0].low_latency_update_mask_buffer(1, True)
        buffers[0].low_latency_query_mask_buffer(status)
        self.assertEqual(list(status), [0, 1])
        self.assertEqual(buffers[0].low_latency_query_mask_epoch(), 0)
        buffers[0].low_latency_clean_mask_buffer()
        buffers[0].low_latency_query_mask_buffer(status)
        self.assertEqual(list(status), [0, 0])

    def test_a_mask_that_the_ranks_agree_on_is_set_by_nobody_alone(self):
        _, buffers = start(enable_shrink=True)
        on_all(2, lambda rank: buffers[rank].clean_low_latency_buffer(TOKENS, HIDDEN, EXPERTS))
        with self.assertRaisesRegex(ValueError, "agree on, and no other"):
            buffers[0].low_latency_update_mask_buffer(1, True)
        status = np.ones(2, np.int32)
        buffers[0].low_latency_query_mask_buffer(status)
        self.assertEqual((list(status), buffers[0].low_latency_query_mask_epoch()), ([0, 0], 0))


class Ends(unittest.TestCase):
    def test_destroyed_between_any_two_steps_and_used_no_more(self):
        x, topk, weights = inputs(3)
        for steps in range(4):
            job, buffers = start()
            job.inject(0, 0, "down")
            some = buffers[: steps or 1]
            sent = [b.low_latency_dispatch(x, topk, TOKENS, EXPERTS, return_recv_hook=True) for b in some]
            if steps > 1:
                [result[-1]() for result in sent]
            if steps > 2:
                made = np.zeros((2, TOKENS * 2, HIDDEN), np.float32)
                buffers[0].low_latency_combine(made, topk, weights, sent[0][2], return_recv_hook=True)
            buffers[0].destroy()
            buffers[0].destroy()
            with self.assertRaisesRegex(RuntimeError, "destroyed"):
                buffers[0].low_latency_dispatch(x, topk, TOKENS, EXPERTS)
            del job, buffers, sent
            gc.collect()

    def test_threads_of_this_process_end_with_the_job(self):
        def threads():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))

        gc.collect()
        before = threads()
        job, buffers = start()
        self.assertGreater(threads(), before)
        [buffer.destroy() for buffer in buffers]
        del job, buffers
        gc.collect()
        self.assertEqual(threads(), before)


class Numbers(unittest.TestCase):
    def test_bf16_and_fp8(self):
        values = np.array([0, 1, -2.5, 3.140625, 448, np.inf, 1 + 2**-8, 1 + 3 * 2**-8], np.float32)
        back = deep_ep.from_bf16(deep_ep.to_bf16(values))
        np.testing.assert_array_equal(back, [0, 1, -2.5, 3.140625, 448, np.inf, 1, 1 + 2**-6])
        self.assertTrue(np.isnan(deep_ep.from_bf16(deep_ep.to_bf16(np.array([np.nan], np.float32))))[0])
        self.assertEqual(list(deep_ep.from_fp8(np.array([0x38, 0xC0, 0x7E, 0x01], np.uint8))), [1, -2, 448, 2**-9])


if __name__ == "__main__":
    unittest.main()
