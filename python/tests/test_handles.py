"""Both halves in one buffer, events that wait, what handles hold, times of waits, the memory of a buffer."""

import importlib.util
import inspect
import threading
import unittest

import numpy as np
import shunt_ep as deep_ep
import test_buffer
import test_normal
from test_buffer import on_all
from test_normal import CONFIG, HIDDEN, LOCALS, NODES, RANKS, Case


def start(**options):
    """Buffers of four ranks, two nodes of two, with both halves."""
    sizes = (
        test_buffer.size(RANKS),
        CONFIG.get_rdma_buffer_size_hint(2 * HIDDEN, RANKS, ranks_per_node=LOCALS),
    )
    job = deep_ep.SoftJob(RANKS, max(sizes), num_qps_per_rank=4, ranks_per_node=LOCALS)
    make = lambda rank: deep_ep.Buffer(job.group(rank), 0, max(sizes), True, **options)
    return job, [make(rank) for rank in range(RANKS)]


class Both(unittest.TestCase):
    def test_layers_of_both_modes_take_turns_across_a_fault(self):
        job, buffers = start()
        cases = [Case(seed, fp8=seed % 2 == 1) for seed in range(6)]

        def body(rank):
            for number, case in enumerate(cases):
                if rank == 2 and number in (2, 4):
                    job.inject(2, 0, "down" if number == 2 else "up")
                met, want = test_buffer.Layers().layer(buffers[rank], rank, number, use_fp8=False)
                np.testing.assert_array_equal(met, want)
                test_normal.Layers().layer(buffers[rank], case, number)
            buffers[rank].destroy()
            buffers[rank].destroy()

        on_all(RANKS, body)
        self.assertGreater(job.failovers(), 0)

    def test_arguments_stand_in_the_order_of_v1_2_1(self):
        names = list(inspect.signature(deep_ep.Buffer.__init__).parameters)[1:10]
        first = ["group", "num_nvl_bytes", "num_rdma_bytes", "low_latency_mode", "num_qps_per_rank"]
        rest = ["allow_nvlink_for_low_latency_mode", "allow_mnnvl", "explicitly_destroy", "comm"]
        self.assertEqual(names, first + rest)
        self.assertRegex(deep_ep.__version__, r"^\d+\.\d+\.\d+$")
        self.assertTrue(deep_ep.Buffer.is_sm90_compiled())


class Events(unittest.TestCase):
    def test_an_event_is_over_once_the_others_have_sent(self):
        _, buffers = test_buffer.start()
        sent = [test_buffer.inputs(rank)[:2] for rank in range(2)]
        dispatch = lambda rank, **more: buffers[rank].low_latency_dispatch(
            *sent[rank], test_buffer.TOKENS, test_buffer.EXPERTS, use_fp8=False, **more
        )
        received, counts, handle, event, hook = dispatch(0, async_finish=True)
        self.assertIsNone(hook)
        self.assertFalse(event.event.query() or buffers[0].get_comm_stream().query(), "the other rank has sent nothing")
        self.assertEqual(counts.sum(), 0)
        waited = threading.Thread(target=event.current_stream_wait)
        waited.start()
        dispatch(1)
        waited.join()
        self.assertTrue(event.event.query())
        chosen = sum(np.count_nonzero((topk >= 0) & (topk < 2)) for _, topk in sent)
        self.assertEqual(counts.sum(), chosen)
        rows = np.any(received != 0, axis=2).sum(axis=1)
        self.assertTrue((rows <= counts).all() and rows.sum() > 0)

    def test_what_ends_a_call_early_is_raised_by_its_event_and_by_the_next_call(self):
        _, buffers = test_buffer.start(timeout=0.5)
        x, topk, _ = test_buffer.inputs(1)
        sizes = test_buffer.TOKENS, test_buffer.EXPERTS
        *_, event, _ = buffers[0].low_latency_dispatch(x, topk, *sizes, async_finish=True)
        with self.assertRaises(deep_ep.Fault), event:
            pass
        with self.assertRaisesRegex(RuntimeError, "clean"):
            buffers[0].low_latency_dispatch(x, topk, *sizes)

    def test_waits_for_each_rank_are_added_up(self):
        _, buffers = test_buffer.start(2)

        def body(rank):
            x, topk, weights = test_buffer.inputs(rank)
            sizes = test_buffer.TOKENS, test_buffer.EXPERTS
            costs, before = np.zeros(2, np.int64), np.zeros(2, np.int64)
            for _ in range(2):
                received, _, handle, _, _ = buffers[rank].low_latency_dispatch(
                    x, topk, *sizes, use_fp8=False, dispatch_wait_recv_cost_stats=costs
                )
                self.assertTrue((costs > before).all(), costs)
                before = costs.copy()
                buffers[rank].low_latency_combine(
                    received, topk, weights, handle, combine_wait_recv_cost_stats=costs
                )
                self.assertTrue((costs > before).all(), costs)
                before = costs.copy()

        on_all(2, body)


class Handles(unittest.TestCase):
    def dispatch(self, buffer, case):
        rank = buffer.rank
        ways = test_normal.Layers().layout(buffer, case)
        given = {"topk_idx": case.topk[rank], "topk_weights": case.weights[rank], "config": CONFIG}
        received, _, weights, _, handle, _ = buffer.internode_dispatch(case.x[rank], **ways, **given)
        return received, weights, handle, ways["is_token_in_rank"]

    def test_items_between_nodes_are_those_of_v1_2_1(self):
        _, buffers = start()
        case, channels = Case(2), CONFIG.num_sms // 2

        def parts(goes):
            """Sums of channels up to each, and numbers in a channel."""
            size = max(1, -(-len(goes) // channels))
            counts = np.array([goes[at * size : (at + 1) * size].sum(axis=0) for at in range(channels)])
            return counts.T, np.cumsum(counts, axis=0).T

        def body(rank):
            received, weights, handle, inside = self.dispatch(buffers[rank], case)
            self.assertEqual(len(handle), 10)
            to_node = inside.reshape(-1, NODES, LOCALS).any(axis=2)
            self.assertIs(handle[0], inside)
            np.testing.assert_array_equal(handle[1], parts(to_node)[1])
            np.testing.assert_array_equal(handle[2], parts(inside)[1])
            # Over this rank's rail: tokens of ranks of its number, to its node.
            local, node = rank % LOCALS, rank // LOCALS
            goes = lambda source: np.stack([case.goes(source, to) for to in range(RANKS)], axis=1)
            over = [goes(of * LOCALS + local)[:, node * LOCALS : (node + 1) * LOCALS] for of in range(NODES)]
            arriving = [tokens.any(axis=1) for tokens in over]
            np.testing.assert_array_equal(handle[3], [parts(tokens[:, None])[1][0] for tokens in arriving])
            np.testing.assert_array_equal(handle[4], np.cumsum([tokens.sum() for tokens in arriving]))
            mine = [case.goes(source, rank) for source in range(RANKS)]
            sums = np.cumsum([tokens.sum() for tokens in mine])
            np.testing.assert_array_equal(handle[6], sums)
            first = [[sums[at] - mine[at].sum(), *(sums[at] - mine[at].sum() + parts(mine[at][:, None])[1][0])] for at in range(RANKS)]
            np.testing.assert_array_equal(handle[5], np.array(first)[:, :-1])
            meta = handle[7].view(np.int32)
            np.testing.assert_array_equal(meta[:, 0], [source // LOCALS for source, _ in case.rows(rank)])
            self.assertTrue((meta[:, 1] == 1 << local).all())
            self.assertEqual((handle[7].dtype, handle[7].shape[1]), (np.uint8, 8))
            np.testing.assert_array_equal(handle[8] >= 0, to_node)
            np.testing.assert_array_equal(handle[9] >= 0, np.concatenate([one[one.any(axis=1)] for one in over]))
            self.assertTrue(all(part.dtype == np.int32 for part in (*handle[1:7], *handle[8:])))
            # A plain tuple of the same items does.
            out = np.zeros((handle.num_recv_tokens, HIDDEN), np.uint16)
            combined, sums, _ = buffers[rank].internode_combine(out, tuple(handle), weights)
            self.assertEqual((combined.shape, sums.shape), ((len(inside), HIDDEN), case.topk[rank].shape))
            with self.assertRaisesRegex(ValueError, "no dispatch has made"):
                buffers[rank].combine(out, tuple(item.copy() for item in handle))
            with self.assertRaisesRegex(ValueError, "another buffer's"):
                buffers[(rank + 1) % RANKS].combine(out, handle)

        on_all(RANKS, body)

    def test_items_on_one_node_are_those_of_v1_2_1(self):
        size = CONFIG.get_rdma_buffer_size_hint(2 * HIDDEN, 2, ranks_per_node=2)
        job = deep_ep.SoftJob(2, size, num_qps_per_rank=4)
        buffers = [deep_ep.Buffer(job.group(rank), 0, size) for rank in range(2)]
        case = Case(3, ranks=2, node=2)

        def body(rank):
            *_, handle, inside = self.dispatch(buffers[rank], case)
            self.assertEqual(len(handle), 6)
            matrix, sent, first, sources, given, head = handle
            np.testing.assert_array_equal(matrix[:, rank], handle.recv_rank_prefix_sum)
            np.testing.assert_array_equal(sent[:, -1], inside.sum(axis=0))
            self.assertTrue((first[:, 0] == 0).all())
            self.assertEqual(len(sources), handle.num_recv_tokens)
            self.assertIs(given, inside)
            np.testing.assert_array_equal(head >= 0, inside)

        on_all(2, body)


class Memory(unittest.TestCase):
    def test_memory_inside_a_node_is_refused(self):
        _, buffers = test_buffer.start()
        with self.assertRaisesRegex(ValueError, "use_rdma_buffer: expected True, got False"):
            buffers[0].get_local_buffer_tensor(None)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_tensors_over_the_memory_of_a_buffer(self):
        import torch

        _, buffers = test_buffer.start()
        whole = buffers[0].get_local_buffer_tensor(torch.uint8, use_rdma_buffer=True)
        self.assertEqual(whole.numel(), buffers[0].num_rdma_bytes)
        part = buffers[0].get_local_buffer_tensor(torch.int32, torch.Size([2, 3]), 4, True)
        part[:] = 7
        np.testing.assert_array_equal(whole[16:40].view(torch.int32), np.full(6, 7))
        part[:] = 0
        with self.assertRaisesRegex(ValueError, "elements at most"):
            buffers[0].get_local_buffer_tensor(torch.int64, (1 << 40,), 0, True)


if __name__ == "__main__":
    unittest.main()
