use shunt_tests::oracle::*;

fn stream() -> Stream {
    Stream { id: 3, from: 0, to: 1, channel: 2, base: 64, slots: 4, slot_bytes: 64 }
}

fn heap() -> (Vec<u64>, u64) {
    let memory = vec![0u64; 256];
    let address = memory.as_ptr() as u64;
    (memory, address)
}

/// Delivers `message` as a correct library would.
fn deliver(stream: &Stream, heap: u64, message: u64) {
    for word in 0..stream.slot_bytes / 8 {
        store(heap + stream.destination(message) + word * 8, pattern(stream.id, message, word));
    }
}

#[test]
fn regions_do_not_overlap() {
    let stream = stream();
    assert_eq!(stream.source(5), 64 + 64);
    assert_eq!(stream.destination(0), 64 + 256);
    assert_eq!((stream.signal(), stream.credit()), (64 + 512, 64 + 576));
    assert_eq!(stream.credit() + 64 - stream.base, Stream::bytes(4, 64));
}

#[test]
fn a_delivered_message_is_clean() {
    let ((_memory, heap), stream, oracle) = (heap(), stream(), Oracle::default());
    deliver(&stream, heap, 9);
    stream.consume(heap, 9, &oracle, 0);
    stream.check_poison(heap, 9, &oracle, 0);
    assert_eq!(oracle.total(), 0, "{}", oracle.describe());
}

#[test]
fn each_breach_has_its_name() {
    let ((_memory, heap), stream, oracle) = (heap(), stream(), Oracle::default());
    stream.consume(heap, 9, &oracle, 0);
    assert_eq!(oracle.count(Kind::Order), 1, "nothing had arrived");
    deliver(&stream, heap, 9);
    stream.check_poison(heap, 9, &oracle, 0);
    assert_eq!(oracle.count(Kind::Ghost), 1, "written after it was consumed");
    stream.consume(heap, 13, &oracle, 0);
    assert_eq!(oracle.count(Kind::Ghost), 2, "an older message in the slot");
    deliver(&stream, heap, 17);
    store(heap + stream.destination(17) + 24, 0x1234);
    stream.consume(heap, 17, &oracle, 0);
    assert_eq!(oracle.count(Kind::Corrupt), 1);
    assert!(oracle.describe().contains("message 17 word 3 is 0x1234"), "{}", oracle.describe());
}

#[test]
fn patterns_tell_messages_and_words_apart() {
    let mut seen = std::collections::HashSet::new();
    for message in 0..64 {
        for word in 0..64 {
            assert!(seen.insert(pattern(1, message, word)));
            assert_eq!(message_of(1, pattern(1, message, word)), Some(message));
            assert_eq!(message_of(2, pattern(1, message, word)), None);
        }
    }
}
