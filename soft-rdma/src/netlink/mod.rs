//! `NETLINK_RDMA`: devices and ports as libibverbs and `rdma` of iproute2 ask for them.
//!
//! [`answers`] turns a datagram of requests into datagrams of answers and knows nothing of sockets; [`socket`] knows
//! the sockets. Numbers and order of attributes are those of `<rdma/rdma_netlink.h>` and the kernel behind it.

mod numbers;
pub mod socket;
mod wire;

use numbers::{attribute, command};
use rustix::io::Errno;
use shunt_soft_machine::kind::Kind;
use shunt_soft_machine::sysfs::{CONNECTIONS_ABI, CONNECTIONS_NUMBER, DEVICE_NUMBER, Device};
use shunt_soft_uverbs::verbs::DEVICE_CAPS;
use wire::{Message, To, Writer};

pub use numbers::{FAMILY, NLDEV};

/// Types below are netlink's own.
const FIRST_TYPE: u16 = 16;
/// Either of its bits asks for a dump.
const DUMP: u16 = libc::NLM_F_DUMP as u16;
/// What a device node of verbs is asked for by.
const UVERBS: &[u8] = b"uverbs";
/// What the device node of connections is asked for by.
const CONNECTIONS: &[u8] = b"rdma_cm";
/// The interface's version, as `abi_version` of a device's directory has it.
const UVERBS_ABI: u64 = 1;
/// Every port is port 1.
const PORT: u32 = 1;

/// The answers to a datagram that came from the socket of this port, as datagrams. `connects`: there is a device node
/// of connections.
pub fn answers(request: &[u8], port: u32, devices: &[Device], connects: bool) -> Vec<Vec<u8>> {
    let (mut rest, mut datagrams) = (request, Vec::new());
    while let Some((message, next)) = Message::first(rest) {
        let to = To { sequence: message.sequence, port };
        answer(&message, to, (devices, connects), &mut datagrams);
        rest = next;
    }
    datagrams
}

fn answer(
    message: &Message<'_>,
    to: To,
    (devices, connects): (&[Device], bool),
    datagrams: &mut Vec<Vec<u8>>,
) {
    let asked = message.flags & libc::NLM_F_REQUEST as u16 != 0 && message.kind >= FIRST_TYPE;
    let result = match asked {
        true if message.flags & DUMP != 0 => match dump(message, to, devices) {
            // Its end is its acknowledgement.
            Ok(dumped) => return datagrams.extend(dumped),
            Err(error) => Err(error),
        },
        true => one(message, to, devices, connects).map(|answer| datagrams.push(answer)),
        false => Ok(()),
    };
    if result.is_err() || message.flags & libc::NLM_F_ACK as u16 != 0 {
        let code = result.err().map_or(0, |error| -error.raw_os_error());
        let mut datagram = Vec::new();
        Writer::new(&mut datagram, wire::ERROR, libc::NLM_F_CAPPED, to)
            .raw(&code.to_ne_bytes())
            .raw(message.header());
        datagrams.push(datagram);
    }
}

/// The command a message asks for; EINVAL if it is not one of devices.
fn command_of(message: &Message<'_>) -> Result<u16, Errno> {
    match (message.kind >> 10, message.kind & 0x3ff) {
        (NLDEV, command @ 1..command::END) => Ok(command),
        _ => Err(Errno::INVAL),
    }
}

/// What a command that is not answered is refused with.
fn refusal(command: u16) -> Errno {
    match command {
        // They are, but not in this way.
        command::GET | command::PORT_GET | command::SYS_GET | command::GET_CHARDEV => Errno::INVAL,
        _ => Errno::OPNOTSUPP,
    }
}

/// Answers with everything there is.
fn dump(message: &Message<'_>, to: To, devices: &[Device]) -> Result<Vec<Vec<u8>>, Errno> {
    let command = command_of(message)?;
    let (mut datagram, flags) = (Vec::new(), libc::NLM_F_MULTI);
    let mut code = 0;
    match command {
        command::GET => {
            for device in devices {
                describe(Writer::new(&mut datagram, message.kind, flags, to), device);
            }
        }
        // The kernel has begun the dump when it finds out.
        command::PORT_GET => match named(message, devices) {
            Ok(device) => _ = describe_port(Writer::new(&mut datagram, message.kind, flags, to), device),
            Err(error) => code = -error.raw_os_error(),
        },
        command => return Err(refusal(command)),
    }
    let mut done = Vec::new();
    Writer::new(&mut done, wire::DONE, flags, to).raw(&code.to_ne_bytes());
    Ok([datagram, done].into_iter().filter(|datagram| !datagram.is_empty()).collect())
}

/// Answers with what is asked for.
fn one(message: &Message<'_>, to: To, devices: &[Device], connects: bool) -> Result<Vec<u8>, Errno> {
    let command = command_of(message)?;
    let mut datagram = Vec::new();
    let writer = Writer::new(&mut datagram, message.kind, 0, to);
    match command {
        command::GET => _ = describe(writer, named(message, devices)?),
        command::PORT_GET => {
            let device = named(message, devices)?;
            if message.number(attribute::PORT_INDEX)? != PORT {
                return Err(Errno::INVAL);
            }
            describe_port(writer, device);
        }
        command::GET_CHARDEV if connects && message.text(attribute::CHARDEV_TYPE)? == CONNECTIONS => {
            describe_connections(writer);
        }
        command::GET_CHARDEV => describe_node(writer, node(message, devices)?),
        command::SYS_GET => {
            // Devices are seen from every network namespace. The NIC reads and writes by the addresses of the process
            // that owns it, so a fork takes no memory away from it.
            writer.byte(attribute::SYS_NETNS_MODE, 1).byte(attribute::SYS_COPY_ON_FORK, 1);
        }
        command => return Err(refusal(command)),
    }
    Ok(datagram)
}

/// The device whose index a message has.
fn named<'a>(message: &Message<'_>, devices: &'a [Device]) -> Result<&'a Device, Errno> {
    let index = message.number(attribute::DEV_INDEX)?;
    devices.iter().find(|device| device.index == index).ok_or(Errno::INVAL)
}

/// The device whose node is asked for: those of verbs are all there are.
fn node<'a>(message: &Message<'_>, devices: &'a [Device]) -> Result<&'a Device, Errno> {
    let kind = message.text(attribute::CHARDEV_TYPE)?;
    let device = message.attribute(attribute::DEV_INDEX)?.map(|_| named(message, devices)).transpose()?;
    device.filter(|_| kind == UVERBS).ok_or(Errno::OPNOTSUPP)
}

/// Capability bits.
fn device_caps(device: &Device) -> u32 {
    if device.kind == Kind::Mlx5 { DEVICE_CAPS } else { 0 }
}

fn describe<'a>(message: Writer<'a>, device: &Device) -> Writer<'a> {
    let identity = device.kind.identity();
    let message = message
        .word(attribute::DEV_INDEX, device.index)
        .text(attribute::DEV_NAME, &device.name)
        .word(attribute::PORT_INDEX, PORT)
        .long(attribute::CAP_FLAGS, device_caps(device).into())
        .text(attribute::FW_VERSION, &device.firmware())
        .long(attribute::NODE_GUID, device.guid)
        .long(attribute::SYS_IMAGE_GUID, device.guid)
        .byte(attribute::DEV_NODE_TYPE, identity.node_type)
        .byte(attribute::DEV_DIM, 0);
    match identity.protocol {
        Some(protocol) => message.text(attribute::DEV_PROTOCOL, protocol),
        None => message,
    }
}

/// A port of RoCE: LIDs and the subnet's prefix are InfiniBand's.
fn describe_port<'a>(message: Writer<'a>, device: &Device) -> Writer<'a> {
    // Active and up, or down and disabled.
    let (state, physical) = if device.port.up { (4, 5) } else { (1, 3) };
    let message = message
        .word(attribute::DEV_INDEX, device.index)
        .text(attribute::DEV_NAME, &device.name)
        .word(attribute::PORT_INDEX, PORT)
        .byte(attribute::PORT_STATE, state)
        .byte(attribute::PORT_PHYS_STATE, physical);
    if device.kind == Kind::Efa {
        return message;
    }
    message.word(attribute::NDEV_INDEX, device.interface_index).text(attribute::NDEV_NAME, &device.interface)
}

/// The kernel's own form of large device numbers.
fn number((major, minor): (u32, u32)) -> u64 {
    ((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)).into()
}

fn describe_connections(message: Writer<'_>) {
    message
        .long(attribute::CHARDEV, number(CONNECTIONS_NUMBER))
        .long(attribute::CHARDEV_ABI, CONNECTIONS_ABI.into())
        .text(attribute::CHARDEV_NAME, "rdma_cm");
}

fn describe_node(message: Writer<'_>, device: &Device) {
    message
        .long(attribute::CHARDEV, number((DEVICE_NUMBER.0, DEVICE_NUMBER.1 + device.index)))
        .long(attribute::CHARDEV_ABI, UVERBS_ABI)
        .text(attribute::CHARDEV_NAME, &format!("uverbs{}", device.index))
        .word(attribute::UVERBS_DRIVER_ID, device.kind.identity().driver_number);
}

#[cfg(test)]
mod tests;
