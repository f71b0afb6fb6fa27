//! Property tests of the log: what is written is read, in pieces of any length, and no bytes are a panic.

use super::*;
use proptest::prelude::*;

fn identity() -> impl Strategy<Value = PathIdentity> {
    (any::<[[u8; 16]; 4]>(), any::<[u16; 2]>(), any::<[u32; 5]>()).prop_map(|(names, lids, words)| {
        PathIdentity {
            local_gid: names[0],
            remote_gid: names[1],
            local_rail_name: names[2],
            remote_rail_name: names[3],
            local_lid: lids[0],
            remote_lid: lids[1],
            local_qpn: words[0],
            remote_qpn: words[1],
            local_rail: words[2],
            remote_rail: words[3],
            incarnation: words[4],
        }
    })
}

fn record() -> impl Strategy<Value = SwitchRecord> {
    let words = (any::<u64>(), any::<[u32; 8]>(), any::<[u64; 4]>(), any::<[u64; 6]>());
    (words, identity(), identity()).prop_map(|((sequence, w, d, stamps), left, entered)| SwitchRecord {
        sequence,
        kind: w[0],
        cause: w[1],
        peer: w[2],
        channel: w[3],
        from: w[4],
        to: w[5],
        syndrome: w[6],
        ledger: w[7],
        done_at_close: d[0],
        executed: d[1],
        journal_end: d[2],
        generation: d[3],
        stamps,
        left,
        entered,
        reserved: [0; 11],
    })
}

fn ended() -> impl Strategy<Value = Ended> {
    let text = any::<String>().boxed();
    prop_oneof![
        text.clone().prop_map(|text| Ended::Failed(Failing::NoPath, text)),
        (any::<u8>(), text.clone())
            .prop_map(|(syndrome, text)| Ended::Failed(Failing::Program(Syndrome(syndrome)), text)),
        text.clone().prop_map(|text| Ended::Failed(Failing::Untolerated, text)),
        text.clone().prop_map(|text| Ended::Failed(Failing::Unfenced, text)),
        text.clone().prop_map(|text| Ended::Failed(Failing::Gone, text)),
        text.clone().prop_map(|text| Ended::Failed(Failing::Uncertain, text)),
        text.prop_map(Ended::Stalled),
    ]
}

fn counters() -> impl Strategy<Value = RailCounters> {
    prop::collection::vec(any::<Option<u64>>(), 6).prop_map(|values| {
        let (mut counters, mut values) = (RailCounters::default(), values.into_iter());
        each_counter(&mut counters, |value| *value = values.next().unwrap());
        counters
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        (any::<u32>(), record()).prop_map(|(pe, record)| Entry::Record(pe, Box::new(Switch(record)))),
        (any::<[u32; 3]>(), any::<u64>()).prop_map(|([pe, peer, channel], since_ns)| Entry::Pathless(
            Pathless { pe, peer, channel, since_ns }
        )),
        any::<u64>().prop_map(Entry::RecordsLost),
        (any::<u32>(), any::<Vec<u64>>()).prop_map(|(first, bytes)| Entry::Bins { first, bytes }),
        (any::<u32>(), any::<u64>()).prop_map(|(fault, hits)| Entry::Hits { fault, hits }),
        (any::<[u32; 2]>(), any::<u64>(), counters()).prop_map(|([pe, rail], at_ns, counters)| {
            Entry::Counters { at: RailAt { pe, rail }, at_ns, counters }
        }),
        (any::<u32>(), any::<[u64; 2]>()).prop_map(|(pe, [failovers, switchbacks])| Entry::Generations {
            pe,
            failovers,
            switchbacks
        }),
        (any::<u32>(), any::<[u64; 2]>()).prop_map(|(stream, [puts, misread])| Entry::Sent {
            stream,
            puts,
            misread
        }),
        (any::<[u32; 2]>(), any::<u64>()).prop_map(|([pe, channel], count)| Entry::Uncertain {
            pe,
            channel,
            count
        }),
        (any::<u32>(), any::<[u64; 8]>()).prop_map(|(stream, f)| Entry::Received {
            stream,
            findings: Findings {
                puts: f[0],
                lost: f[1],
                late: f[2],
                ghosts: f[3],
                backwards: f[4],
                wild: f[5],
                again: f[6]
            },
            gap_ns: f[7],
        }),
        (any::<u32>(), any::<bool>(), any::<[u64; 3]>()).prop_map(|(stream, credit, w)| Entry::Word {
            stream,
            credit,
            watch: WordWatch { writes: w[0], last: w[1], not_increasing: w[2] },
        }),
        (any::<u8>(), ended()).prop_map(|(rank, ended)| Entry::Ended(rank, ended)),
        any::<String>().prop_map(Entry::FirstPath),
        any::<u64>().prop_map(Entry::End),
    ]
}

proptest! {
    #[test]
    fn a_log_is_read_as_it_was_written_in_whatever_pieces_it_comes(
        entries in prop::collection::vec(entry(), 0..12),
        piece in 1usize..200,
    ) {
        let mut log = Vec::new();
        entries.iter().for_each(|entry| append(&mut log, entry));
        let (mut held, mut read) = (Vec::new(), Vec::new());
        for piece in log.chunks(piece) {
            held.extend_from_slice(piece);
            read.extend(take_entries(&mut held).unwrap());
        }
        prop_assert!(held.is_empty());
        prop_assert_eq!(read, entries);
    }

    #[test]
    fn no_bytes_are_a_panic(kind in 0u8..16, bytes in any::<Vec<u8>>(), whole in any::<bool>()) {
        let body: Vec<u8> = std::iter::once(kind).chain(bytes).collect();
        let length = if whole { body.len() as u32 } else { body.len() as u32 / 2 };
        let mut log: Vec<u8> = length.to_le_bytes().into_iter().chain(body).collect();
        let _ = take_entries(&mut log);
    }
}

#[test]
fn a_wrong_entry_is_refused_and_one_that_is_cut_off_waits() {
    let mut log = Vec::new();
    append(&mut log, &Entry::End(7));
    let mut cut = log[..log.len() - 1].to_vec();
    assert_eq!(take_entries(&mut cut), Ok(Vec::new()));
    assert_eq!(cut.len(), log.len() - 1);
    log[4] = 99;
    assert_eq!(take_entries(&mut log), Err(BadBytes::Value { field: "kind of an entry", met: 99 }));
}
