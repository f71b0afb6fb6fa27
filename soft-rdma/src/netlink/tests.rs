//! Requests as libibverbs and iproute2 send them, and what they get.

use super::*;
use proptest::prelude::*;
use shunt_soft_machine::port::PortView;
use shunt_soft_nic::Counters;

const PORT_OF_SOCKET: u32 = 4711;
const REQUEST: i32 = libc::NLM_F_REQUEST;
const ACK: i32 = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
const LIST: i32 = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;

fn devices(count: u32) -> Vec<Device> {
    let port = PortView { up: true, mtu: 4096, width: 2, speed: 128, rate: "400 Gb/sec (4X NDR)", lid: 0 };
    let device = |index| Device {
        kind: Kind::Mlx5,
        name: format!("mlx5_{index}"),
        index,
        guid: 0x0253_48ff_fe00_0000 + u64::from(index),
        gid: [0; 16],
        interface: "lo".into(),
        interface_index: 1,
        port,
        counters: Counters::default(),
    };
    (0..count).map(device).collect()
}

/// A request; its sequence number is 77.
fn request(command: u16, flags: i32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut datagram = Vec::new();
    let writer = Writer::new(&mut datagram, NLDEV << 10 | command, flags, To { sequence: 77, port: 0 });
    attributes.iter().fold(writer, |writer, (kind, value)| writer.put(*kind, value));
    datagram
}

fn ask(request: &[u8], count: u32) -> Vec<Vec<u8>> {
    answers(request, PORT_OF_SOCKET, &devices(count), false)
}

fn messages(datagram: &[u8]) -> Vec<Message<'_>> {
    let mut rest = datagram;
    let all: Vec<Message<'_>> = std::iter::from_fn(|| {
        let (message, next) = Message::first(rest)?;
        rest = next;
        Some(message)
    })
    .collect();
    assert!(rest.is_empty(), "{} bytes are left", rest.len());
    for message in &all {
        assert_eq!(message.sequence, 77);
        assert_eq!(message.header()[12..], PORT_OF_SOCKET.to_ne_bytes());
    }
    all
}

/// The number after the header of the only message of a datagram, which is of this kind.
fn code(datagram: &[u8], kind: u16) -> i32 {
    let all = messages(datagram);
    assert_eq!((all.len(), all[0].kind), (1, kind));
    i32::from_ne_bytes(*datagram[wire::HEADER..].first_chunk().unwrap())
}

fn error(datagrams: &[Vec<u8>]) -> i32 {
    assert_eq!(datagrams.len(), 1);
    code(&datagrams[0], wire::ERROR)
}

const ZERO: &[u8] = &[0; 4];
const ONE: &[u8] = &1u32.to_ne_bytes();
const NINE: &[u8] = &9u32.to_ne_bytes();

#[test]
fn all_devices_are_listed() {
    let datagrams = ask(&request(command::GET, LIST | ACK, &[]), 3);
    assert_eq!(datagrams.len(), 2, "the devices, and their end");
    let all = messages(&datagrams[0]);
    assert_eq!(all.len(), 3);
    for (index, message) in (0..).zip(all) {
        assert_eq!((message.kind, message.flags), (0x1401, libc::NLM_F_MULTI as u16));
        assert_eq!(message.number(attribute::DEV_INDEX), Ok(index));
        assert_eq!(message.text(attribute::DEV_NAME), Ok(format!("mlx5_{index}").as_bytes()));
        assert_eq!(message.number(attribute::PORT_INDEX), Ok(1));
        assert_eq!(message.text(attribute::FW_VERSION), Ok(b"28.39.1002".as_slice()));
        let guid = 0x0253_48ff_fe00_0000u64 + u64::from(index);
        assert_eq!(message.attribute(attribute::NODE_GUID), Ok(Some(guid.to_ne_bytes().as_slice())));
        assert_eq!(message.attribute(attribute::DEV_NODE_TYPE), Ok(Some([1].as_slice())));
        assert_eq!(message.text(attribute::DEV_PROTOCOL), Ok(b"roce".as_slice()));
    }
    assert_eq!(code(&datagrams[1], wire::DONE), 0);
}

#[test]
fn a_soft_efa_is_told_as_one() {
    let efa = Device { kind: Kind::Efa, name: "efa_0".into(), ..devices(1).remove(0) };
    let ask = |command, more: &[(u16, &[u8])]| {
        let attributes = [&[(attribute::DEV_INDEX, &[0; 4][..])], more].concat();
        let answered = answers(
            &request(command, REQUEST, &attributes),
            PORT_OF_SOCKET,
            std::slice::from_ref(&efa),
            false,
        );
        answered.into_iter().next().unwrap()
    };
    let device = ask(command::GET, &[]);
    let told = &messages(&device)[0];
    assert_eq!(told.text(attribute::DEV_NAME), Ok(b"efa_0".as_slice()));
    assert_eq!(told.attribute(attribute::DEV_NODE_TYPE), Ok(Some([7].as_slice())));
    assert_eq!(told.attribute(attribute::DEV_PROTOCOL), Ok(None), "it is none that netlink knows");
    let port = ask(command::PORT_GET, &[(attribute::PORT_INDEX, ONE)]);
    assert_eq!(messages(&port)[0].attribute(attribute::NDEV_NAME), Ok(None));
    let node = ask(command::GET_CHARDEV, &[(attribute::CHARDEV_TYPE, b"uverbs\0")]);
    assert_eq!(messages(&node)[0].number(attribute::UVERBS_DRIVER_ID), Ok(17));
}

#[test]
fn a_process_without_devices_has_an_empty_list() {
    let datagrams = ask(&request(command::GET, LIST, &[]), 0);
    assert_eq!(datagrams.len(), 1);
    assert_eq!(code(&datagrams[0], wire::DONE), 0);
}

#[test]
fn one_device_is_asked_for_by_its_index() {
    let datagrams = ask(&request(command::GET, ACK, &[(attribute::DEV_INDEX, ONE)]), 2);
    assert_eq!(datagrams.len(), 2);
    let all = messages(&datagrams[0]);
    assert_eq!((all.len(), all[0].flags), (1, 0));
    assert_eq!(all[0].text(attribute::DEV_NAME), Ok(b"mlx5_1".as_slice()));
    assert_eq!(code(&datagrams[1], wire::ERROR), 0, "an acknowledgement");
    let without = ask(&request(command::GET, REQUEST, &[(attribute::DEV_INDEX, ONE)]), 2);
    assert_eq!(without, datagrams[..1]);
    for attributes in [&[][..], &[(attribute::DEV_INDEX, NINE)], &[(attribute::DEV_INDEX, &[0])]] {
        assert_eq!(error(&ask(&request(command::GET, ACK, attributes), 2)), -libc::EINVAL);
    }
}

#[test]
fn ports_are_told() {
    let index = (attribute::DEV_INDEX, ONE);
    let listed = ask(&request(command::PORT_GET, LIST, &[index]), 2);
    let single = ask(&request(command::PORT_GET, REQUEST, &[index, (attribute::PORT_INDEX, ONE)]), 2);
    for datagram in [&listed[0], &single[0]] {
        let all = messages(datagram);
        assert_eq!((all.len(), all[0].number(attribute::DEV_INDEX)), (1, Ok(1)));
        assert_eq!(all[0].attribute(attribute::PORT_STATE), Ok(Some([4].as_slice())));
        assert_eq!(all[0].attribute(attribute::PORT_PHYS_STATE), Ok(Some([5].as_slice())));
        assert_eq!(all[0].number(attribute::NDEV_INDEX), Ok(1));
        assert_eq!(all[0].text(attribute::NDEV_NAME), Ok(b"lo".as_slice()));
        assert_eq!(all[0].attribute(9), Ok(None), "a LID is InfiniBand's");
    }
    let mut down = devices(1);
    down[0].port.up = false;
    let asked = request(command::PORT_GET, LIST, &[(attribute::DEV_INDEX, ZERO)]);
    let datagrams = answers(&asked, PORT_OF_SOCKET, &down, false);
    let all = messages(&datagrams[0]);
    assert_eq!(all[0].attribute(attribute::PORT_STATE), Ok(Some([1].as_slice())));
    // A list that cannot be made ends with the error.
    let none = ask(&request(command::PORT_GET, LIST, &[(attribute::DEV_INDEX, NINE)]), 2);
    assert_eq!((none.len(), code(&none[0], wire::DONE)), (1, -libc::EINVAL));
    let no_port = [index, (attribute::PORT_INDEX, NINE)];
    assert_eq!(error(&ask(&request(command::PORT_GET, REQUEST, &no_port), 2)), -libc::EINVAL);
}

#[test]
fn nodes_are_told() {
    let verbs = (attribute::CHARDEV_TYPE, b"uverbs\0".as_slice());
    let datagrams = ask(&request(command::GET_CHARDEV, REQUEST, &[(attribute::DEV_INDEX, ONE), verbs]), 2);
    let all = messages(&datagrams[0]);
    assert_eq!(all[0].text(attribute::CHARDEV_NAME), Ok(b"uverbs1".as_slice()));
    assert_eq!(all[0].attribute(attribute::CHARDEV_ABI), Ok(Some(1u64.to_ne_bytes().as_slice())));
    let number = (231u64 << 8) | 193;
    assert_eq!(all[0].attribute(attribute::CHARDEV), Ok(Some(number.to_ne_bytes().as_slice())));
    assert_eq!(all[0].number(attribute::UVERBS_DRIVER_ID), Ok(1));
    let index = (attribute::DEV_INDEX, ZERO);
    for (attributes, code) in [
        (&[index][..], libc::EINVAL),
        (&[(attribute::DEV_INDEX, NINE), verbs], libc::EINVAL),
        (&[verbs], libc::EOPNOTSUPP),
        (&[index, (attribute::CHARDEV_TYPE, b"umad\0")], libc::EOPNOTSUPP),
        (&[(attribute::CHARDEV_TYPE, b"rdma_cm\0")], libc::EOPNOTSUPP),
    ] {
        let refused = ask(&request(command::GET_CHARDEV, REQUEST, attributes), 2);
        assert_eq!(error(&refused), -code, "{attributes:?}");
    }
}

#[test]
fn what_holds_for_all_devices() {
    let datagrams = ask(&request(command::SYS_GET, REQUEST, &[]), 0);
    let all = messages(&datagrams[0]);
    assert_eq!(all[0].attribute(attribute::SYS_NETNS_MODE), Ok(Some([1].as_slice())));
    assert_eq!(all[0].attribute(attribute::SYS_COPY_ON_FORK), Ok(Some([1].as_slice())));
}

#[test]
fn other_commands_are_refused() {
    for (command, flags, code) in [
        (2, REQUEST, libc::EOPNOTSUPP),
        (9, LIST, libc::EOPNOTSUPP),
        (24, REQUEST, libc::EOPNOTSUPP),
        (0, REQUEST, libc::EINVAL),
        (25, REQUEST, libc::EINVAL),
        (command::SYS_GET, LIST, libc::EINVAL),
        (command::GET_CHARDEV, LIST, libc::EINVAL),
    ] {
        assert_eq!(error(&ask(&request(command, flags, &[]), 1)), -code, "{command}");
    }
    // The same command of another client.
    let mut other = request(command::GET, LIST, &[]);
    other[4..6].copy_from_slice(&(4u16 << 10 | command::GET).to_ne_bytes());
    assert_eq!(error(&ask(&other, 1)), -libc::EINVAL);
    // No request, and netlink's own: nothing is done, and told if it is asked for.
    assert!(ask(&request(command::GET, 0, &[]), 1).is_empty());
    assert_eq!(error(&ask(&request(command::GET, libc::NLM_F_ACK, &[]), 1)), 0);
}

#[test]
fn requests_of_one_datagram_are_answered_in_turn() {
    let two = [request(command::SYS_GET, REQUEST, &[]), request(command::GET, LIST, &[])].concat();
    assert_eq!(ask(&two, 1).len(), 3);
    assert_eq!(ask(&two[..two.len() - 1], 1).len(), 1, "the second is cut");
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for datagram in ask(&bytes, 2) {
            prop_assert!(Message::first(&datagram).is_some());
        }
    }

    #[test]
    fn any_attributes_are_survived(
        command in 0u16..30,
        flags in any::<u16>(),
        attributes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut datagram = Vec::new();
        let to = To { sequence: 77, port: 0 };
        Writer::new(&mut datagram, NLDEV << 10 | command, flags.into(), to).raw(&attributes);
        for datagram in ask(&datagram, 2) {
            prop_assert!(!messages(&datagram).is_empty());
        }
    }
}
