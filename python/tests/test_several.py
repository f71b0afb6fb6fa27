"""The installed wheel: calls to several peers, counts of immediates, and words that are watched."""

import asyncio
import threading
import time
import unittest

import numpy as np
import shunt_transfer as st

SOON = 30.0
PART = 4096


class Three(unittest.TestCase):
    def setUp(self):
        self.ends = st.Engine.threads(3, rails=2)

    def tearDown(self):
        for end in self.ends:
            end.close()

    def targets(self, nbytes=PART):
        """Memory of ends 1 and 2, and what end 0 needs of it."""
        memory = [np.zeros(nbytes, np.uint8) for _ in self.ends[1:]]
        regions = [end.register(mine, "write") for end, mine in zip(self.ends[1:], memory)]
        return memory, [st.Target(region.describe()) for region in regions]

    def test_a_scatter_brings_each_peer_its_part_while_a_port_goes_down(self):
        one, two, three = self.ends
        source = np.arange(2 * PART, dtype=np.uint8)
        own, (memory, targets) = one.register(source), self.targets()
        for turn in range(400):
            if turn == 1:
                one.inject(0, "down")
            if turn > 3 and one.counts().failovers > 0:
                break
            source += 1
            arrived = [end.expect(0, turn, 1, SOON) for end in (two, three)]
            shares = [
                st.Share(1, targets[0], PART - 8, source_offset=8, target_offset=4, imm=turn),
                st.Share(2, targets[1], PART, source_offset=PART, imm=turn),
            ]
            scatter = one.scatter(own, shares)
            scatter.wait(SOON)
            self.assertEqual((scatter.shares(), scatter.done()), ([None, None], True))
            for expectation in arrived:
                expectation.wait(SOON)
            self.assertTrue(np.array_equal(memory[0][4 : PART - 4], source[8:PART]), turn)
            self.assertTrue(np.array_equal(memory[1], source[PART:]), turn)
        self.assertGreater(one.counts().failovers, 0)

    def test_each_share_says_how_it_ended(self):
        one, two, _ = self.ends
        own, (memory, targets) = one.register(np.ones(PART, np.uint8)), self.targets()
        region = two.register(np.zeros(PART, np.uint8), "write")
        gone = st.Target(region.describe())
        two.deregister(region)
        scatter = one.scatter(own, [st.Share(1, gone, PART), st.Share(2, targets[1], PART)])
        with self.assertRaises(st.TransferError) as raised:
            scatter.wait(SOON)
        self.assertEqual((raised.exception.kind, raised.exception.is_quiet), ("denied", True))
        ends = [error and error.kind for error in scatter.shares(SOON)]
        self.assertEqual((ends, memory[1].all()), (["denied", None], True))

    def test_a_cancelled_scatter_is_quiet(self):
        big = 8 << 20
        _, targets = self.targets(big)
        own = self.ends[0].register(np.ones(big, np.uint8))
        scatter = self.ends[0].scatter(own, [st.Share(1, targets[0], big), st.Share(2, targets[1], big)])
        scatter.cancel("now")
        with self.assertRaises(st.TransferError) as raised:
            scatter.wait(SOON)
        self.assertEqual((raised.exception.kind, raised.exception.is_quiet), ("cancelled", True))

    def meet(self, imm, timeout=SOON, ends=3):
        """Barriers of the first so many ends with all others, begun."""
        regions = [end.register(np.zeros(8, np.uint8), "write") for end in self.ends]
        targets = {number: st.Target(region.describe()) for number, region in enumerate(regions)}
        others = [{peer: to for peer, to in targets.items() if peer != number} for number in range(ends)]
        return [self.ends[number].barrier(imm, regions[number], others[number], timeout) for number in range(ends)]

    def test_ends_meet_and_none_goes_on_alone(self):
        first, second = self.meet(5, ends=2)
        with self.assertRaises(TimeoutError):
            first.wait(0.05)
        self.assertFalse(second.done())
        regions = [end.register(np.zeros(8, np.uint8), "write") for end in self.ends]
        others = {peer: st.Target(regions[peer].describe()) for peer in (0, 1)}
        third = self.ends[2].barrier(5, regions[2], others, SOON)

        async def all_meet():
            await asyncio.gather(first, second, third)

        asyncio.run(all_meet())

    def test_who_does_not_come_is_missing(self):
        (alone,) = self.meet(6, 0.1, ends=1)
        with self.assertRaises(st.TransferError) as raised:
            alone.wait(SOON)
        self.assertEqual((raised.exception.kind, raised.exception.peers), ("missing", (1, 2)))

    def test_immediates_are_counted_and_forgotten(self):
        one, two, _ = self.ends
        own, (_, targets) = one.register(np.ones(PART, np.uint8)), self.targets()
        for _ in range(3):
            one.write(1, own, targets[0], 8, imm=7).wait(SOON)
        two.expect(0, 7, 2, SOON).wait(SOON)
        # The third may still be on its way to the count: a later one would not be missed.
        until = time.monotonic() + SOON
        while two.counter(0, 7) == 0 and time.monotonic() < until:
            time.sleep(0.001)
        self.assertEqual(two.counter(0, 7), 1)
        awaited = two.expect(0, 7, 5)
        two.forget(0, 7)
        with self.assertRaises(st.TransferError) as raised:
            awaited.wait(SOON)
        self.assertEqual((raised.exception.kind, two.counter(0, 7)), ("missing", 0))
        self.assertGreater(one.give_up(), 0)

    def test_wrong_calls_say_what_was_expected_and_post_nothing(self):
        one, two, _ = self.ends
        own, (memory, targets) = one.register(np.ones(PART, np.uint8)), self.targets()
        word, watcher = np.zeros(1, np.uint64), one.watch(np.zeros(1, np.uint64), lambda *_: None)
        share = st.Share(1, targets[0], PART)
        for error, said, call in (
            (ValueError, "shares of a scatter: expected one or more, got none", lambda: one.scatter(own, [])),
            (TypeError, "shares: expected a Share of each peer", lambda: one.scatter(own, [tuple(share)])),
            (ValueError, "within 4096 of the region", lambda: one.scatter(own, [share, share._replace(nbytes=PART + 1)])),
            (ValueError, "peer: expected another end of the job, got 0 at end 0",
             lambda: one.scatter(own, [share, share._replace(peer=0)])),
            (ValueError, "region: expected one of this node", lambda: two.scatter(own, [share._replace(peer=2)])),
            (TypeError, "target: expected a Target", lambda: one.scatter(own, [share._replace(target=own)])),
            (ValueError, "the others of a barrier: expected one or more, .* got none", lambda: one.barrier(1, own, {})),
            (TypeError, "others: expected targets by the numbers of peers", lambda: one.barrier(1, own, [targets[0]])),
            (ValueError, "peer: expected another end of the job, got 3 at end 0",
             lambda: one.barrier(1, own, {3: targets[0]})),
            (ValueError, "word: expected memory of 8 bytes, got 16", lambda: one.watch(np.zeros(2, np.uint64))),
            (ValueError, "word: expected an address that is a multiple of 8",
             lambda: one.watch(np.zeros(16, np.uint8)[1:9])),
            (TypeError, "each: expected a function of two values", lambda: one.watch(word, 7)),
            (TypeError, "watcher: expected what watch gave", lambda: one.unwatch(7)),
            (ValueError, "watcher: expected one of this node", lambda: two.unwatch(watcher)),
            (ValueError, "a watcher: expected one without a function", lambda: watcher.wait(1)),
            (ValueError, "peer: expected another end of the job", lambda: one.forget(9, 1)),
            (ValueError, "peer: expected another end of the job", lambda: one.counter(9, 1)),
        ):
            with self.assertRaisesRegex(error, said):
                call()
        self.assertFalse(memory[0].any())


class Words(unittest.TestCase):
    def setUp(self):
        self.one, self.two = st.Engine.threads(2)
        self.word = np.zeros(1, np.uint64)

    def tearDown(self):
        self.one.close()
        self.two.close()

    def test_changes_are_told_in_order_and_the_last_one_is_never_lost(self):
        told, seen = [], threading.Event()

        def each(before, now):
            told.append((before, now))
            if now == 1000:
                seen.set()

        watcher = self.one.watch(self.word, each)
        for value in range(1, 1001):
            self.word[0] = value
        self.assertTrue(seen.wait(SOON))
        self.assertTrue(self.one.unwatch(watcher))
        self.assertEqual(told[0][0], 0)
        self.assertEqual([before for before, _ in told[1:]], [now for _, now in told[:-1]])
        self.assertFalse(self.one.unwatch(watcher))
        count = len(told)
        self.word[0] = 5
        other = self.one.watch(self.word)
        self.word[0] = 6
        self.assertEqual(other.wait(SOON), (5, 6))
        self.assertEqual(len(told), count, "it is over")

    def test_a_function_that_has_enough_is_called_no_more(self):
        enough, told = threading.Event(), []

        def each(before, now):
            told.append(now)
            enough.set()
            return True

        watcher = self.one.watch(self.word, each)
        self.word[0] = 1
        self.assertTrue(enough.wait(SOON))
        watcher._thread.join(SOON)
        self.word[0] = 2
        self.assertFalse(self.one.unwatch(watcher))
        self.assertEqual(told, [1])

    def test_a_change_is_waited_for(self):
        watcher = self.one.watch(self.word)
        with self.assertRaisesRegex(TimeoutError, "expected a change within 0.01 s, got none"):
            watcher.wait(0.01)
        self.word[0] = 7
        self.assertEqual(watcher.wait(SOON), (0, 7))
        self.one.unwatch(watcher)
        with self.assertRaisesRegex(RuntimeError, "the watcher has ended"):
            watcher.wait(SOON)

    def test_an_event_loop_waits_for_a_change_and_a_cancelled_one_takes_none(self):
        watcher = self.one.watch(self.word)

        async def waits():
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(watcher_next(), 0.05)
            self.word[0] = 3
            return await watcher

        async def watcher_next():
            return await watcher

        self.assertEqual(asyncio.run(waits()), (0, 3))

    def test_a_word_that_a_peer_writes_is_told(self):
        at = st.Target(self.one.register(self.word, "write").describe())
        watcher = self.one.watch(self.word)
        own = self.two.register(np.full(1, 42, np.uint64))
        self.two.write(0, own, at).wait(SOON)
        self.assertEqual(watcher.wait(SOON), (0, 42))

    def test_one_whose_engine_is_closed_has_ended(self):
        watcher, told = self.one.watch(self.word), self.one.watch(self.word, lambda *_: None)
        self.one.close()
        with self.assertRaisesRegex(RuntimeError, "the watcher has ended"):
            watcher.wait(SOON)
        told._thread.join(SOON)
        self.assertFalse(told._thread.is_alive())


if __name__ == "__main__":
    unittest.main()
