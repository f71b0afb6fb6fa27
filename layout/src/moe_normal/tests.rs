use super::*;
use std::vec::Vec;

fn shapes() -> Vec<NormalMap> {
    let of = |(nodes, locals, channels, chunk, slots, near_slots)| {
        let (local_experts, tokens, hidden, topk) = (3, 7, 512, 3);
        let shape = NormalShape {
            nodes,
            locals,
            local_experts,
            tokens,
            hidden,
            topk,
            channels,
            chunk,
            slots,
            near_slots,
        };
        NormalMap::of(shape.check().unwrap())
    };
    [(2, 2, 1, 1, 2, 1), (2, 4, 2, 2, 4, 3), (4, 2, 3, 2, 6, 2), (1, 3, 2, 1, 3, 1)].map(of).to_vec()
}

#[test]
fn no_two_things_share_a_byte() {
    for s in shapes() {
        let mut spans = Vec::new();
        let (nodes, locals) = (s.nodes, s.locals);
        let word = |at: At| (at.0, at.0 + 8);
        use ByBoth as B;
        use ByLocal as L;
        use ByNode as N;
        for channel in 0..s.channels {
            spans.extend((0..WATCH_WORDS).map(|number| word(s.watch(channel).plus(number, 8))));
            for node in 0..nodes {
                let by = |word| s.by_node(word, channel, node);
                let tails = [N::DispatchTail, N::DispatchHead, N::CombineTail, N::CombineHead, N::Cursor];
                let filled = [N::DispatchFilled, N::DispatchPut, N::DispatchTaken, N::DispatchTold];
                let rest =
                    [N::DispatchUntil, N::CombineFilled, N::CombinePut, N::CombineTaken, N::CombineTold];
                let filled = [&filled[..], &[N::Summed]].concat();
                spans.extend([&tails[..], &filled, &rest].concat().into_iter().map(|kind| word(by(kind))));
                for slot in 0..u64::from(s.slots) {
                    let span = |at: At, bytes| (at.0, at.0 + bytes);
                    spans.push(span(s.dispatch_sent(channel, node, slot), s.dispatch_stride()));
                    spans.push(span(s.dispatch_come(channel, node, slot), s.dispatch_stride()));
                    spans.push(span(s.combine_sent(channel, node, slot), s.combine_stride()));
                    spans.push(span(s.combine_come(channel, node, slot), s.combine_stride()));
                }
                for local in 0..locals {
                    let all = [B::Tail, B::Head, B::Pushed, B::Taken, B::Next, B::End];
                    spans.extend(all.map(|kind| word(s.by_both(kind, channel, node, local))));
                    for slot in 0..u64::from(s.near_slots) {
                        let at = s.near_combine(channel, node, local, slot).0;
                        spans.push((at, at + s.combine_stride()));
                    }
                }
            }
            for local in 0..locals {
                let all = [L::Tail, L::Head, L::Pushed, L::Taken, L::Until];
                spans.extend(all.map(|kind| word(s.by_local(kind, channel, local))));
                for slot in 0..u64::from(s.near_slots) {
                    let at = s.near_dispatch(channel, local, slot).0;
                    spans.push((at, at + s.dispatch_stride()));
                }
            }
        }
        for node in 0..nodes {
            let all = [OfNode::Noted, OfNode::Credit, OfNode::Meeting, OfNode::Cleaned];
            spans.extend(all.map(|kind| word(s.of_node(kind, node))));
            for set in 0..RECORD_SETS {
                for at in [s.record_sent(set, node), s.record_come(set, node)] {
                    spans.push((at.0, at.0 + s.record_bytes()));
                }
            }
        }
        for local in 0..locals {
            let all = [OfLocal::Noted, OfLocal::Read, OfLocal::Meeting, OfLocal::Cleaned];
            spans.extend(all.map(|kind| word(s.of_local(kind, local))));
        }
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{s:?}: {pair:?}");
        }
        assert!(spans.last().unwrap().1 <= s.bytes(), "{s:?}");
        assert!(spans.iter().all(|(at, end)| at % 8 == 0 && (end - at == 8 || at % 16 == 0)), "{s:?}");
    }
}

#[test]
fn words_of_a_record_are_its_own() {
    for s in shapes() {
        let mut seen = std::collections::BTreeSet::new();
        for channel in 0..s.channels {
            assert!(seen.insert(s.recorded_node(channel)));
            assert!((0..s.locals).all(|local| seen.insert(s.recorded_rank(channel, local))));
        }
        for local in 0..s.locals {
            assert!((0..s.local_experts).all(|expert| seen.insert(s.recorded_expert(local, expert))));
        }
        assert!(seen.into_iter().all(|word| word < s.record_words()), "{s:?}");
    }
}

#[test]
fn channels_share_out_the_tokens() {
    for s in shapes() {
        for tokens in 0..=s.tokens {
            let mut next = 0;
            for channel in 0..s.channels {
                let (first, end) = s.tokens_of(channel, tokens);
                assert_eq!(first, next);
                assert!(end >= first && end - first <= s.part(tokens));
                next = end;
            }
            assert_eq!(next, tokens);
        }
    }
}

#[test]
fn what_cannot_be_says_what_would_be_right() {
    let wrong = |change: fn(&mut NormalShape)| {
        let mut shape: NormalShape = *shapes()[1];
        change(&mut shape);
        std::string::ToString::to_string(&shape.check().unwrap_err())
    };
    assert!(wrong(|s| s.nodes = 0).contains("1 to 1024"));
    assert!(wrong(|s| s.nodes = 4096).contains("got 16384"));
    assert!(wrong(|s| s.locals = 33).contains("1 to 32"));
    assert!(wrong(|s| s.topk = 12).contains("1 to 11"));
    assert!(wrong(|s| s.channels = 0).contains("channels: expected 1 or more"));
    assert!(wrong(|s| s.near_slots = 0).contains("slots inside a node"));
    assert!(wrong(|s| s.local_experts = 0).contains("experts of a rank"));
    assert!(wrong(|s| s.tokens = 0).contains("1 or more"));
    assert!(wrong(|s| s.hidden = 700).contains("multiple of 512"));
    assert!(wrong(|s| s.slots = 2).contains("at least 4"));
    assert!(wrong(|s| s.slots = 5).contains("multiple of the chunk, 2"));
    assert!(wrong(|s| s.tokens = 1 << 30).contains("rows of a rank"));
    let huge = |s: &mut NormalShape| (s.hidden, s.channels, s.slots) = (1 << 31, u32::MAX, u32::MAX - 1);
    assert!(wrong(huge).contains("bytes: expected at most"));
}
