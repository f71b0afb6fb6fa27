//! Whatever is read from outside: what was written reads as itself, and nothing that arrives makes a reader panic or
//! believe what was not written.

use proptest::prelude::*;
use proptest::sample::Index;
use shunt_host::agent::message::{Home, Message, PairId, SideTruth};
use shunt_host::config::{EnvConfig, parse_duration};
use shunt_host::connect::card::{HalfCard, PeCard, RailCard, halves_from_bytes, halves_to_bytes};
use shunt_host::nic::caps::Link;
use shunt_layout::bits::{Field, Field64};
use shunt_layout::mlx5::prm::{cmd, cq, mkey, qp};
use shunt_tests::spec::RunSpec;

fn rails() -> impl Strategy<Value = RailCard> {
    let link = prop_oneof![Just(Link::InfiniBand), Just(Link::Ethernet)];
    let addresses = (any::<u16>(), any::<[u8; 6]>(), any::<[u8; 16]>(), any::<[u8; 16]>());
    (any::<u32>(), link, 1u32..=5, addresses).prop_map(|(index, link, mtu, (lid, mac, gid, name))| RailCard {
        index,
        link,
        mtu,
        lid,
        mac,
        gid,
        name,
    })
}

fn halves() -> impl Strategy<Value = HalfCard> {
    let words = any::<[u32; 2]>();
    (0u32..1 << 24, 0u32..1 << 24, words, rails()).prop_map(|(qpn, psn, [incarnation, ece], rail)| HalfCard {
        qpn,
        psn,
        incarnation,
        ece,
        rail,
    })
}

fn cards() -> impl Strategy<Value = PeCard> {
    let keys = || prop::collection::vec(any::<u32>(), 0..9);
    let keyed = (rails(), (0u32..1 << 24, (keys(), keys())));
    let words = (any::<[u32; 9]>(), any::<[u64; 2]>(), any::<[u8; 16]>());
    (words, prop::collection::vec(keyed, 0..5)).prop_map(|((words, heap, draw), keyed)| {
        let (rails, keyed): (Vec<_>, Vec<_>) = keyed.into_iter().unzip();
        let (datagrams, keys): (_, Vec<_>) = keyed.into_iter().unzip();
        let (rkeys, data_rkeys) = keys.into_iter().unzip();
        PeCard {
            pe: words[0],
            channels_per_pe: words[1],
            backups: words[2],
            log_depth: words[3],
            log2_chunk: words[4],
            ordering: words[5],
            fetch: words[6],
            plain_atomics: words[7],
            uncounted: words[8],
            heap_base: heap[0],
            heap_bytes: heap[1],
            draw,
            rails,
            datagrams,
            rkeys,
            data_rkeys,
        }
    })
}

fn messages() -> impl Strategy<Value = Message> {
    let id = any::<[u32; 3]>().prop_map(|[channel, slot, incarnation]| PairId { channel, slot, incarnation });
    let counters = (0u32..1 << 24, 0u32..1 << 24);
    let truth = prop_oneof![
        counters.prop_map(|(executed, next_rcv_psn)| SideTruth::Exact { executed, next_rcv_psn }),
        Just(SideTruth::Fenced),
        Just(SideTruth::Dead),
        Just(SideTruth::Unused),
    ];
    let home = any::<[u32; 2]>().prop_map(|[rail, version]| Home { rail, version });
    (id, truth, (halves(), home), any::<u32>(), any::<bool>(), 0..10).prop_map(
        |(id, truth, (card, home), rail, down, which)| match which {
            0 => Message::Fence(id),
            1 => Message::Truth(id, truth),
            2 => Message::Left(id),
            3 => Message::Make(id, card, rail, home),
            4 => Message::Made(id, card, home),
            5 => Message::Up(id),
            6 => Message::Proved(id),
            7 => Message::Home { channel: id.channel, home },
            8 => Message::AskHome { channel: id.channel, version: home.version, rails: rail, pressing: down },
            _ => Message::Port { rail, down, at_ns: u64::from(id.incarnation) << 32 | 7 },
        },
    )
}

/// One byte changed, the end cut off, or something put behind.
fn bent(mut bytes: Vec<u8>, at: Index, how: u8, to: u8) -> Vec<u8> {
    let place = at.index(bytes.len());
    match how % 3 {
        0 => bytes[place] = to,
        1 => bytes.truncate(place),
        _ => bytes.extend(std::iter::repeat_n(to, place + 1)),
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn cards_survive_their_bytes(
        half in halves(), pe in cards(), table in prop::collection::vec(prop::option::of(halves()), 0..9),
    ) {
        prop_assert_eq!(HalfCard::from_bytes(&half.to_bytes()), Ok(half));
        prop_assert_eq!(PeCard::from_bytes(&pe.to_bytes()), Ok(pe));
        prop_assert_eq!(halves_from_bytes(&halves_to_bytes(&table)), Ok(table));
    }

    #[test]
    fn messages_survive_their_bytes(message in messages()) {
        prop_assert_eq!(Message::from_bytes(&message.to_bytes()), Ok(message));
    }

    /// A bent card or message is refused, or reads as something that has exactly these bytes: nothing is made up.
    #[test]
    fn what_is_bent_is_refused_or_is_something_else(
        half in halves(), pe in cards(), message in messages(),
        at in any::<Index>(), how in any::<u8>(), to in any::<u8>(),
    ) {
        let bytes = bent(half.to_bytes(), at, how, to);
        if let Ok(read) = HalfCard::from_bytes(&bytes) {
            prop_assert_eq!(read.to_bytes(), bytes);
        }
        let bytes = bent(pe.to_bytes(), at, how, to);
        if let Ok(read) = PeCard::from_bytes(&bytes) {
            prop_assert_eq!(read.to_bytes(), bytes);
        }
        let bytes = bent(message.to_bytes(), at, how, to);
        if let Ok(read) = Message::from_bytes(&bytes) {
            prop_assert_eq!(Message::from_bytes(&read.to_bytes()), Ok(read));
            prop_assert_eq!(read.to_bytes().len(), bytes.len());
        }
    }

    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() >= 12 {
            bytes[..4].copy_from_slice(b"SHMG");
            bytes[4..8].copy_from_slice(&shunt_layout::ABI_VERSION.to_be_bytes());
            let code = u32::from(bytes[11] % 16);
            bytes[8..12].copy_from_slice(&code.to_be_bytes());
        }
        let _ = (HalfCard::from_bytes(&bytes), PeCard::from_bytes(&bytes), halves_from_bytes(&bytes));
        if let Ok(read) = Message::from_bytes(&bytes) {
            prop_assert_eq!(read.to_bytes().len(), bytes.len());
        }
    }

    #[test]
    fn durations_of_the_environment_are_exact(whole in 0u64..1_000_000, digits in "[0-9]{1,9}", unit in 0usize..4) {
        let (name, ns) = [("ns", 1u64), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)][unit];
        prop_assert_eq!(parse_duration(&format!("{whole}{name}")), Some(whole * ns));
        let parts = 10u64.pow(digits.len() as u32);
        let fraction = u128::from(digits.parse::<u64>().expect("digits")) * u128::from(ns);
        let (parts, start) = (u128::from(parts), whole * ns);
        let exact = fraction.is_multiple_of(parts).then(|| start + (fraction / parts) as u64);
        prop_assert_eq!(parse_duration(&format!("{whole}.{digits}{name}")), exact);
    }

    #[test]
    fn no_value_of_the_environment_makes_a_reader_panic(
        name in prop::sample::select(
            shunt_host::config::VARIABLES.iter().map(|variable| variable.name).collect::<Vec<_>>()
        ),
        value in "\\PC{0,20}|[0-9.]{1,25}(ns|us|ms|s|)",
    ) {
        let lookup = |asked: &str| (asked == name).then(|| value.clone());
        let read = EnvConfig::from_lookup(&lookup);
        if let Err(error) = read {
            let text = error.to_string();
            prop_assert!(text.contains(name), "{}={}: {}", name, value, text);
        }
    }

    /// A run in words, whatever it is.
    #[test]
    fn a_run_survives_its_text(seed in any::<u64>(), cause in any::<String>(), numbers in any::<[u32; 4]>()) {
        let mut spec = RunSpec::from_seed(seed);
        spec.cause = cause;
        (spec.pes, spec.rails, spec.mtu, spec.log2_chunk) = (numbers[0], numbers[1], numbers[2], numbers[3]);
        prop_assert_eq!(spec.to_string().parse::<RunSpec>(), Ok(spec));
    }

    #[test]
    fn a_bent_run_is_read_or_refused_by_line(seed in 0u64..400, at in any::<Index>(), letter in any::<char>()) {
        let mut letters: Vec<char> = RunSpec::from_seed(seed).to_string().chars().collect();
        let at = at.index(letters.len());
        letters[at] = letter;
        if let Err(error) = letters.into_iter().collect::<String>().parse::<RunSpec>() {
            prop_assert!(error.starts_with("line "), "{}", error);
        }
    }
}

/// A structure: its name, its size, its fields.
type Structure = (&'static str, usize, &'static [(&'static str, Field)], &'static [(&'static str, Field64)]);

/// Mailbox structures of the PRM.
const STRUCTURES: &[Structure] = &[
    ("command input", cmd::input::BYTES, cmd::input::ALL, cmd::input::ALL_WIDE),
    ("qpc", qp::qpc::BYTES, qp::qpc::ALL, qp::qpc::ALL_WIDE),
    ("ads", qp::ads::BYTES, qp::ads::ALL, qp::ads::ALL_WIDE),
    ("create qp", qp::create::BYTES, qp::create::ALL, qp::create::ALL_WIDE),
    ("cqc", cq::cqc::BYTES, cq::cqc::ALL, cq::cqc::ALL_WIDE),
    ("mkc", mkey::mkc::BYTES, mkey::mkc::ALL, mkey::mkc::ALL_WIDE),
];

proptest! {
    /// Setting fields in any order leaves each as it was set last, and every bit outside all fields as it was.
    #[test]
    fn fields_of_a_mailbox_do_not_touch(
        which in 0..STRUCTURES.len(),
        background in any::<u8>(),
        writes in prop::collection::vec((any::<Index>(), any::<u64>()), 0..40),
    ) {
        let (name, bytes, narrow, wide) = STRUCTURES[which];
        let mut mailbox = vec![background; bytes];
        let mut expected = vec![None; narrow.len() + wide.len()];
        let mut written = vec![0u8; bytes];
        for (at, value) in writes {
            let at = at.index(expected.len());
            if let Some((_, field)) = narrow.get(at) {
                let value = value as u32 & (field.mask() >> field.lsb);
                field.set(&mut mailbox, value);
                expected[at] = Some(u64::from(value));
                for (byte, mask) in written[field.offset..].iter_mut().zip(field.mask().to_be_bytes()) {
                    *byte |= mask;
                }
            } else {
                let field = wide[at - narrow.len()].1;
                field.set(&mut mailbox, value);
                expected[at] = Some(value);
                written[field.offset..field.offset + 8].fill(0xff);
            }
        }
        for (at, expected) in expected.iter().enumerate() {
            let Some(expected) = expected else { continue };
            let (field, met) = match narrow.get(at) {
                Some((field, place)) => (*field, u64::from(place.get(&mailbox))),
                None => (wide[at - narrow.len()].0, wide[at - narrow.len()].1.get(&mailbox)),
            };
            prop_assert_eq!(met, *expected, "{}.{}", name, field);
        }
        for (at, (byte, mask)) in mailbox.iter().zip(&written).enumerate() {
            prop_assert_eq!(byte & !mask, background & !mask, "{} byte {:#x}", name, at);
        }
    }
}
