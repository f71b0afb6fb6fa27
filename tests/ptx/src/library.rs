//! The device library's functions in the place of entry points: a launch of a scenario as calls that a program in
//! another language would make. Functions of a warp are inlined from the header and are none of the module's.

use crate::code::Module;
use crate::rig::{Station, THREADS};
use shunt_kernels::Outcome;
use shunt_kernels::scenarios::{Group, Launch};

/// A call: function, bytes of its arguments.
type Call = (String, Vec<Vec<u8>>);

pub(crate) fn long(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

pub(crate) fn short(value: u64) -> Vec<u8> {
    (value as u32).to_le_bytes().to_vec()
}

/// The call that posts, or waits, what a launch asks for; none if the library has no such function.
fn call_of(launch: &Launch) -> Option<Call> {
    let (call, group) = (&launch.call, launch.group.suffix());
    let to = || vec![short(call.peer.into()), short(call.channel.into())];
    let with = |more: &[Vec<u8>]| [to(), more.to_vec()].concat();
    let span = [long(call.dst), long(call.src), long(call.bytes)];
    let word = [long(call.word), long(call.value)];
    Some(match launch.kernel {
        "put" => (format!("shunt_put_{group}"), with(&span)),
        "put_signal" => (format!("shunt_put_signal_{group}"), with(&[&span[..], &word].concat())),
        "get" => (format!("shunt_get_{group}"), with(&span)),
        "p" => (format!("shunt_p_{group}"), with(&[long(call.dst), long(call.value), short(call.bytes)])),
        "signal_monotone" => (format!("shunt_signal_{group}"), with(&word)),
        "signal_cleared" => (format!("shunt_signal_cleared_{group}"), with(&word)),
        "signal_add" => (format!("shunt_signal_add_{group}"), with(&word)),
        "signal_cleared32" if launch.group == Group::Thread => {
            ("shunt_try_cleared32".into(), with(&[long(call.word), short(call.value)]))
        }
        "quiet" => (format!("shunt_quiet_{group}"), with(&[long(call.timeout_ns)])),
        "wait_until" => (format!("shunt_wait_until_{group}"), [&word[..], &[long(call.timeout_ns)]].concat()),
        name => return atomic(name, launch).map(|(name, more)| (name, with(&more))),
    })
}

/// `amo_KIND` and `fetch_KIND`.
fn atomic(name: &str, launch: &Launch) -> Option<Call> {
    let call = &launch.call;
    let (door, kind) = name.split_once('_').filter(|(door, _)| ["amo", "fetch"].contains(door))?;
    let value = |value| if kind.ends_with("32") { short(value) } else { long(value) };
    let mut arguments = vec![long(call.word)];
    arguments.extend(kind.starts_with("cas").then(|| value(call.expect)));
    arguments.push(value(call.value));
    arguments.extend((door == "fetch").then(|| long(call.result)));
    let name = if door == "fetch" { format!("shunt_fetch_{kind}") } else { format!("shunt_{kind}") };
    (launch.group == Group::Thread).then_some((name, arguments))
}

/// True if the library can do what a launch asks for.
pub fn can(module: &Module, launch: &Launch) -> bool {
    launch.blocks == 1 && call_of(launch).is_some_and(|(name, _)| module.find(&name).is_some())
}

/// Does what a launch asks for by the function of its group, and says how it ended as an entry point would.
pub fn run(station: &Station, launch: &Launch) -> Outcome {
    const FAILED: u64 = 1 << 63;
    let Some((name, arguments)) = call_of(launch) else { panic!("no function for {}", launch.kernel) };
    let threads = if launch.group == Group::Thread { 1 } else { THREADS };
    let answer = station.run(&name, &arguments, (0, 1), threads);
    let status = |status: u64, value| Outcome { status: status as u32, value, ..Outcome::default() };
    match launch.kernel {
        "quiet" => return status(answer & 0xffff_ffff, 0),
        "wait_until" => return status(answer & 0xffff_ffff, launch.call.value),
        _ if answer & FAILED != 0 => return status(answer & 0xffff_ffff, 0),
        _ => {}
    }
    let fetches = launch.kernel.starts_with("fetch");
    if !fetches && launch.kernel != "get" {
        return status(0, answer);
    }
    let call = &launch.call;
    let to = vec![short(call.peer.into()), short(call.channel.into()), long(answer), long(call.timeout_ns)];
    let ended =
        station.run(&format!("shunt_wait_{}", launch.group.suffix()), &to, (0, 1), threads) & 0xffff_ffff;
    if ended != 0 || !fetches {
        return status(ended, answer);
    }
    let bits = if launch.kernel.ends_with("32") { "32" } else { "64" };
    let found = station.run(&format!("shunt_fetched{bits}"), &[long(call.result)], (0, 1), 1);
    status(0, if bits == "32" { found & 0xffff_ffff } else { found })
}
