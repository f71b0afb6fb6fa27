//! Words about a running job: what goes round agents' datagrams on the rails, an operator's orders, and requests to a
//! process's soft devices with the faults they name. The first byte says as what the rest is read.
//!
//! What is accepted is written and read again as the same; a sealed datagram of which one bit is another is refused,
//! and a number is taken once.

use crate::input::Input;
use shunt_host::agent::links::envelope::{BODY_MAX, Header, Kind, Seal, Stranger, Taken};
use shunt_host::events::control::Order;
use shunt_host::nic::datagram::MESSAGE_MAX;
use shunt_soft_machine::control::Request;
use shunt_soft_machine::kind::Kind as Device;
use shunt_soft_machine::settings::{parse_addresses, parse_fault, parse_nic, parse_rate};
use shunt_soft_nic::FaultKind;
use std::collections::HashSet;
use std::sync::OnceLock;

/// How many readers there are.
const READERS: u8 = 6;
/// The PE that reads.
const ME: u32 = 1;
/// Numbers behind the newest that a receiver tells apart.
const WINDOW: u64 = 4096;
/// NICs of the process whose faults are planned.
const NICS: u32 = 2;

/// Reads the bytes as what the first of them says.
pub fn run(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % READERS {
        0 => opened(bytes),
        1 => sealed(&mut Input(bytes)),
        2 => taken(&mut Input(bytes)),
        3 => order(&String::from_utf8_lossy(bytes)),
        4 => request(bytes),
        _ => settings(&String::from_utf8_lossy(bytes)),
    }
}

fn seal() -> &'static Seal {
    static SEAL: OnceLock<Seal> = OnceLock::new();
    SEAL.get_or_init(|| Seal::new(&[[7; 16]]))
}

/// A stranger's bytes: of those that are not garbage he would have to know the key.
fn opened(bytes: &[u8]) {
    if let Ok((header, body)) = seal().open(bytes, ME) {
        let mut again = [0; MESSAGE_MAX];
        let length = seal().close(&header, body, &mut again);
        assert_eq!(length.map(|length| &again[..length]), Some(bytes), "opened, and not what was closed");
    }
}

/// A PE's own datagram, and the same with a bit that is another.
fn sealed(input: &mut Input) {
    let kinds = [Kind::Message, Kind::Ping, Kind::Pong, Kind::News];
    let kind = kinds[usize::from(input.u8()) % kinds.len()];
    let (from, to) = (u32::from(input.u8() % 4), u32::from(input.u8() % 4));
    let header = Header { from, to, from_rail: input.u16(), to_rail: input.u16(), number: input.u64(), kind };
    let bit = usize::from(input.u16());
    let body = input.0;
    let mut out = [0; MESSAGE_MAX];
    let Some(length) = seal().close(&header, body, &mut out) else {
        assert!(body.len() > BODY_MAX, "a body of {} bytes was refused", body.len());
        return;
    };
    let met = seal().open(&out[..length], ME);
    if to == ME && from != ME {
        assert_eq!(met, Ok((header, body)));
    } else {
        assert_eq!(met, Err(Stranger::Stray));
    }
    out[bit / 8 % length] ^= 1 << (bit % 8);
    assert!(seal().open(&out[..length], ME).is_err(), "bit {bit} is another, and it was opened");
    assert!(seal().open(&out[..length - 1], ME).is_err(), "it was cut, and it was opened");
}

/// Numbers as they come, against a set of all that were taken.
fn taken(input: &mut Input) {
    let (mut taken, mut model, mut newest) = (Taken::default(), HashSet::new(), 0u64);
    while !input.is_empty() {
        // Most are near the newest one: far ones alone would only move the window.
        let number = match input.u8() {
            far if far & 7 == 7 => input.u64(),
            near if near & 1 == 0 => newest.wrapping_add(u64::from(near >> 3)),
            _ => newest.wrapping_sub(u64::from(input.u16())),
        };
        let old = newest.checked_sub(number).is_some_and(|behind| behind >= WINDOW);
        let new = number != 0 && !old && model.insert(number);
        assert_eq!(taken.take(number), new, "{number}, the newest being {newest}");
        newest = newest.max(number);
    }
}

fn order(text: &str) {
    if let Ok(order) = text.parse::<Order>() {
        assert_eq!(order.to_string().parse(), Ok(order));
    }
}

fn request(bytes: &[u8]) {
    let Ok(request) = serde_json::from_slice::<Request>(bytes) else { return };
    let written = serde_json::to_string(&request).expect("it was read");
    assert_eq!(serde_json::from_str::<Request>(&written).ok().as_ref(), Some(&request));
    if let Request::Inject { fault, .. } = &request {
        kind(fault);
    }
}

fn kind(text: &str) {
    if let Ok(kind) = text.parse::<FaultKind>() {
        let written = kind.to_string();
        assert_eq!(written.parse::<FaultKind>().ok(), Some(kind), "{text:?} is written as {written:?}");
    }
}

fn settings(text: &str) {
    if let Ok(planned) = parse_fault(text, NICS, Device::default()) {
        assert!(planned.nic < NICS, "a fault for a NIC that is not there");
    }
    if let Ok(addresses) = parse_addresses(text) {
        let different: HashSet<_> = addresses.iter().collect();
        assert!(!addresses.is_empty() && different.len() == addresses.len(), "{text:?}: {addresses:?}");
    }
    assert!(parse_rate(text).map_or(true, |rate| rate.is_finite() && rate > 0.0));
    let _ = parse_nic(text);
    kind(text);
}

/// One of each.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut add = |which: u8, bytes: &[u8]| {
        let mut seed = vec![which];
        seed.extend(bytes);
        seeds.push(seed);
    };
    for (kind, body) in
        [(Kind::Message, &b"body"[..]), (Kind::Pong, &[0, 0, 0, 0, 0, 0, 0, 9]), (Kind::Ping, b"")]
    {
        let header = Header { from: 0, to: ME, from_rail: 2, to_rail: 3, number: 9, kind };
        let mut out = [0; MESSAGE_MAX];
        let length = seal().close(&header, body, &mut out).expect("it is short");
        add(0, &out[..length]);
        add(1, &[&[kind as u8, 0, 1, 2, 0, 3, 0, 9, 0, 0, 0, 0, 0, 0, 0, 77, 0], body].concat());
    }
    add(2, &[8, 8, 8, 16, 1, 1, 0, 1, 0, 16, 0xf8, 3, 0, 0, 7, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    for text in ["retire 0.1>2.3", "readmit 7.0"] {
        add(3, text.as_bytes());
    }
    for text in [
        r#"{"inject":{"nic":0,"at_ns":7,"fault":"down=300ms"}}"#,
        r#"{"faults":{}}"#,
        r#"{"nics":{}}"#,
        r#"{"watch":{"address":4096}}"#,
        r#"{"watched":{"address":4096}}"#,
    ] {
        add(4, text.as_bytes());
    }
    let texts = ["500ms:mlx5_1:down=300ms", "0:0:drop=0.5/1s", "10.0.0.1,10.0.0.2", "2.5", "mlx5_7"];
    texts.iter().for_each(|text| add(5, text.as_bytes()));
    for info in FaultKind::LIST {
        for parameter in ["", "=1ms", "=2/1ms", "=5us/20"] {
            add(5, format!("{}{parameter}", info.name()).as_bytes());
        }
    }
    seeds
}
