//! The committed table of everything host and device agree on beyond the PRM: `layout/abi.txt`.
//!
//! Both sides compare only `ABI_VERSION` when they meet, so a size, an offset or a value must not change
//! under the same version. Here the code's table is held against the committed one. `cargo xtask abi --bless`
//! rewrites the file, and refuses while the version is still the one the file was made for.
//!
//! Each structure is taken apart without `..`, each enumeration matched without `_`: a field or a value that
//! is added and not listed here does not compile.

use shunt_layout::ABI_VERSION;
use shunt_layout::state::{
    self, AmoForm, AnswerStatus, CauseKind, Channel, DeviceState, FencePolicy, FetchReply, FetchRequest,
    FetchSlot, FetchStatus, HintWord, HotPath, Mailbox, Mirror, OrderPolicy, PathIdentity, PathRow,
    PathState, Policy, ReadyWord, Step, StepRecord, Switch, SwitchKind, SwitchRecord, Tally, Word,
};
use std::mem::{align_of, offset_of, size_of};
use std::path::PathBuf;

fn size_of_field<T, F>(_: impl Fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Lines of one structure: its size and alignment, then offset, size and name of each field.
macro_rules! structure {
    ($out:ident, $type:ident { $($field:ident),+ $(,)? }) => {{
        let _ = |value: $type| { let $type { $($field: _),+ } = value; };
        let fields = [$((
            stringify!($field),
            offset_of!($type, $field),
            size_of_field(|value: &$type| &value.$field),
        )),+];
        push_structure(&mut $out, stringify!($type), size_of::<$type>(), align_of::<$type>(), &fields);
    }};
}

/// Lines of one enumeration.
macro_rules! values {
    ($out:ident, $type:ident { $($value:ident),+ $(,)? }) => {{
        let _ = |value: $type| match value { $($type::$value => ()),+ };
        $out.push(format!("enum {} size {}", stringify!($type), size_of::<$type>()));
        for value in [$($type::$value),+] {
            $out.push(format!("  {:4} {value:?}", value as u32));
        }
    }};
}

/// Lines of constants.
macro_rules! constants {
    ($out:ident, $($name:ident),+ $(,)?) => {
        $($out.push(format!("const {} {:#x}", stringify!($name), state::$name));)+
    };
}

fn push_structure(
    out: &mut Vec<String>,
    name: &str,
    size: usize,
    align: usize,
    fields: &[(&str, usize, usize)],
) {
    out.push(format!("struct {name} size {size} align {align}"));
    let mut next = 0;
    for (field, offset, bytes) in fields {
        assert_eq!(*offset, next, "{name}.{field}: implicit padding before it, or listed out of order");
        next = offset + bytes;
        out.push(format!("  {offset:4} {bytes:4} {field}"));
    }
    assert_eq!(next, size, "{name}: implicit padding at its end");
}

fn words(out: &mut Vec<String>) {
    constants!(out, STEP_RECORDS, SCRATCH_EXTRA, LEDGER_BYTES, BINDING, BOUND);
    out.push(format!("word HomeWord rail 1 version 2 {:#018x}", state::HomeWord::new(1, 2).0));
    constants!(out, MAGIC, SLOTS_MAX, RECORDS, NO_SLOT, CLOSED, FROZEN, BLOCKED, INDEX_MASK, GENERATION_MASK);
    // Where slot, generation and index lie inside a word; the bits are private to `Word`.
    out.push(format!("word Word size {} slot 7 {:#018x}", size_of::<Word>(), Word::new(7, 0, 0).0));
    out.push(format!("word Word generation 255 {:#018x}", Word::new(0, 255, 0).0));
    out.push(format!("word Word index 1 {:#018x}", Word::new(0, 0, 1).0));
    out.push(format!("word ReadyWord size {}", size_of::<ReadyWord>()));
    out.push(format!("word HintWord size {} first down {:#x}", size_of::<HintWord>(), {
        HintWord::default().changed(true).0
    }));
    out.push(format!("row hint of own rail 1 of 4: {}", state::hint_index(4, None, 1)));
    out.push(format!("row hint of rail 1 of 4 of pe 2: {}", state::hint_index(4, Some(2), 1)));
}

fn enumerations(out: &mut Vec<String>) {
    values!(out, Step { Idle, Settle, Fence, Choose, Ledger, Replay, Drain, DrainFlush, Dead, Uncertain });
    values!(out, FencePolicy { Strict, Time });
    values!(out, OrderPolicy { Strict, Relaxed, Unordered });
    values!(out, AnswerStatus { Truth, FencedNoTruth, Unprovable });
    values!(out, PathState { Absent, Ready, Fenced, Released, Probing, Retired, Leaving });
    values!(
        out,
        CauseKind {
            None,
            Completion,
            Overdue,
            PortDown,
            FencedByPeer,
            SwitchBack,
            DrainFailed,
            LedgerFailed,
            Unknown,
        }
    );
    values!(
        out,
        AmoForm {
            Add32,
            Add64,
            Set32,
            Set64,
            And32,
            And64,
            Or32,
            Or64,
            Xor32,
            Xor64,
            CompareSwap32,
            CompareSwap64,
        }
    );
    values!(out, FetchStatus { Done, Unknown, Refused, Unserved });
    values!(out, SwitchKind { Failover, SwitchBack, Dead });
}

// A field a line would be three screens of names.
#[rustfmt::skip]
fn structures(mut out: &mut Vec<String>) {
    structure!(out, Policy {
        fault_tolerance, bracket, suspect_ns, fence_wait_ns, give_up_ns, recovery_window_ns, drain_ns,
        ledger_ns, suspect_floor_ns, packet_lifetime_ns, fence, ordering, polled_puts, rc_gives_up_ms,
    });
    structure!(out, DeviceState {
        magic, abi_version, bytes, my_pe, pe_count, channels_per_pe, slots, rails, log2_chunk, chunks,
        log_depth, heap_base, heap_bytes, peer_heap, lkeys, rkeys, channels, paths, mailboxes, hints, wake,
        records, records_head, scratch, scratch_per_channel, step_records, scratch_lkeys, policy, tallies, steps,
        steps_head, ledger, ring_mask, channel_mask, sink, data_rkeys, fetch, fetch_exact, plain_atomics,
        mirrors, homes, hot, host_channels, reserved2, own_end, reserved3,
    });
    structure!(out, Switch {
        owner, word, from, back, close, done_at_close, journal_end, executed, request, step_since_ns,
        reserved0, cause, syndrome, cause_ticket, from_incarnation, ledger, posted_reads, stamps,
        reserved1, fault, excluded, journal_queue, journal_base, opened_at,
        fruitless, rounds, unexecuted, asked, resolution, erred_seen_ns, erred_age_ns,
    });
    structure!(out, Channel {
        ticket, pad0, done, pad1, ready, posted, post_lock, peer, index, uncertain_op,
        uncertain_address, pad2, bound, pad3, switch,
    });
    structure!(out, Mirror {
        word, bound, posted, noticed_ns, opened_ns, dead_since_ns, journal_queue, executed, failovers, switchbacks,
        cause, reserved, pad,
    });
    structure!(out, Mailbox {
        request, request_slot, request_incarnation, reserved1, reserved0, in_hand_seen, pad0, answer,
        answer_status, answer_executed, answer_slot, answer_incarnation, in_hand, pad1,
    });
    structure!(out, PathIdentity {
        local_gid, remote_gid, local_rail_name, remote_rail_name, local_lid, remote_lid, local_qpn,
        remote_qpn, local_rail, remote_rail, incarnation,
    });
    structure!(out, PathRow {
        send_queue, base, doorbell_record, doorbell_register, qpn_shifted, log_depth,
        local_rail, remote_rail, completion_queue, reserved1, state, incarnation, next_index,
        ready_since_ns, first_cause, reserved, pad0, identity, pad1,
    });
    structure!(out, HotPath {
        send_queue, base, doorbell_record, doorbell_register, qpn_shifted, log_depth, local_rail, remote_rail,
        completion_queue, cq_map, wide, incarnation, reserved, pad,
    });
    structure!(out, SwitchRecord {
        sequence, kind, cause, peer, channel, from, to, syndrome, ledger, done_at_close, executed,
        journal_end, generation, stamps, left, entered, reserved,
    });
    structure!(out, FetchRequest { number, word, operand, expect, form, reserved });
    structure!(out, FetchReply { number, value, status, check });
    structure!(out, FetchSlot {
        request, pad0, reply, pad1, draft, pad2, landing, asked, answered, lock, reserved, pad3,
    });
    structure!(out, Tally {
        suspicions, fences_asked, replayed, placeholders, late_tickets, ledger_cuts, pathless, uncertain, entered,
        left,
    });
    structure!(out, StepRecord {
        sequence, at_ns, row, step, from, to, cause, from_incarnation, done, executed, journal_end,
    });
}

/// The table of the code, without its version.
fn table() -> Vec<String> {
    let mut out = Vec::new();
    words(&mut out);
    enumerations(&mut out);
    structures(&mut out);
    out
}

fn committed_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("abi.txt")
}

/// Version and lines of a committed table.
fn parse(text: &str) -> (Option<u32>, Vec<String>) {
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned);
    let version = lines.next().and_then(|line| line.strip_prefix("abi_version ")?.parse().ok());
    (version, lines.collect())
}

/// What is wrong, in words that say what to do. `None` if nothing is.
fn verdict(committed: &(Option<u32>, Vec<String>), version: u32, code: &[String]) -> Option<String> {
    let changed: Vec<String> = differences(&committed.1, code);
    match (committed.0 == Some(version), changed.is_empty()) {
        (true, true) => None,
        (true, false) => Some(format!(
            "the shared layout changed under ABI_VERSION {version}; raise it in layout/src/lib.rs, then run \
             `cargo xtask abi --bless`. Changed:\n{}",
            changed.join("\n")
        )),
        (false, _) => Some(format!(
            "layout/abi.txt was made for version {:?}, the code has {version}; run `cargo xtask abi --bless`",
            committed.0
        )),
    }
}

fn differences(old: &[String], new: &[String]) -> Vec<String> {
    let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
    let come = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
    let mut out: Vec<String> = gone.chain(come).collect();
    if out.is_empty() && old != new {
        out.push("the same lines in another order".to_owned());
    }
    out
}

#[test]
fn the_committed_table_is_that_of_the_code() {
    let text = std::fs::read_to_string(committed_path()).unwrap_or_default();
    let (committed, code) = (parse(&text), table());
    let changed = !differences(&committed.1, &code).is_empty();
    if std::env::var_os("SHUNT_ABI_BLESS").is_some() && verdict(&committed, ABI_VERSION, &code).is_some() {
        let same_version = committed.0 == Some(ABI_VERSION) && changed;
        assert!(
            !same_version,
            "not blessed: {}",
            verdict(&committed, ABI_VERSION, &code).unwrap_or_default()
        );
        let head =
            "# Sizes, offsets and values that host and device share. Written by `cargo xtask abi --bless`.";
        let body = code.join("\n");
        std::fs::write(committed_path(), format!("{head}\nabi_version {ABI_VERSION}\n{body}\n"))
            .expect("layout/abi.txt is writable");
        return;
    }
    if let Some(wrong) = verdict(&committed, ABI_VERSION, &code) {
        panic!("{wrong}");
    }
}

#[test]
fn a_change_under_the_same_version_is_refused() {
    let code = table();
    let mut old = code.clone();
    old[3].push('0');
    assert!(verdict(&(Some(ABI_VERSION), old), ABI_VERSION, &code).expect("refused").contains("raise it"));
}

#[test]
fn a_new_version_asks_for_a_new_table() {
    let code = table();
    assert!(verdict(&(Some(ABI_VERSION - 1), code.clone()), ABI_VERSION, &code).is_some());
    assert!(verdict(&(None, Vec::new()), ABI_VERSION, &code).is_some());
    assert!(verdict(&(Some(ABI_VERSION), code.clone()), ABI_VERSION, &code).is_none());
}
