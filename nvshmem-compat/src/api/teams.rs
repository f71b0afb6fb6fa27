//! Teams, barriers, sync.

use super::{Stream, call, on_or_launch, status, status_or_launch};
use crate::attr::TeamConfig;
use crate::failure::Failure;
use crate::session::Session;
use crate::stream_call::{StreamCall, What};
use crate::teams::{INVALID, WORLD};
use std::ffi::{c_int, c_long};

/// `NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS`.
const MASK_CONTEXTS: c_long = 1;

#[unsafe(no_mangle)]
extern "C" fn nvshmem_team_my_pe(team: i32) -> c_int {
    number("nvshmem_team_my_pe", team, |team| team.me as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_team_n_pes(team: i32) -> c_int {
    number("nvshmem_team_n_pes", team, |team| team.size() as c_int)
}

/// A number of a team; -1 of a team that this PE has not, which is no mistake: a split gives none to others.
fn number(name: &str, id: i32, of: impl FnOnce(&crate::teams::Team) -> c_int) -> c_int {
    if id == INVALID {
        return -1;
    }
    // One above, so that nothing is -1.
    call(name, |s| Ok(s.teams().team(id).map_or(0, |team| of(&team) + 1))) - 1
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_team_translate_pe(from: i32, pe: c_int, to: i32) -> c_int {
    if from == INVALID || to == INVALID {
        return -1;
    }
    call("nvshmem_team_translate_pe", |s| Ok(s.teams().team(from)?.translate(pe, &s.teams().team(to)?) + 1))
        - 1
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_team_get_config(team: i32, config: *mut TeamConfig) {
    call("nvshmem_team_get_config", |s| {
        let contexts = s.teams().team(team)?.contexts;
        if config.is_null() {
            return Err(Failure::Argument { what: "configuration", met: 0, want: "an address" });
        }
        // SAFETY: the caller's structure.
        unsafe { config.write(TeamConfig::new(contexts)) };
        Ok(())
    });
}

/// Contexts that a configuration asks for.
fn contexts(config: *const TeamConfig, mask: c_long) -> c_int {
    if config.is_null() || mask & MASK_CONTEXTS == 0 {
        return 0;
    }
    // SAFETY: the caller's structure.
    unsafe { (*config).contexts }
}

/// Where new teams' ids go: none before a team is made.
fn into(to: *mut i32, id: i32) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::Argument { what: "new team", met: 0, want: "an address" });
    }
    // SAFETY: the caller's word.
    unsafe { to.write(id) };
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_team_split_strided(
    parent: i32,
    start: c_int,
    stride: c_int,
    size: c_int,
    config: *const TeamConfig,
    mask: c_long,
    new: *mut i32,
) -> c_int {
    status("nvshmem_team_split_strided", |s| {
        into(new, INVALID)?;
        let members = s.teams().team(parent)?.strided(start, stride, size)?;
        into(new, s.split(parent, members, contexts(config, mask))?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_team_split_2d(
    parent: i32,
    width: c_int,
    row_config: *const TeamConfig,
    row_mask: c_long,
    row: *mut i32,
    column_config: *const TeamConfig,
    column_mask: c_long,
    column: *mut i32,
) -> c_int {
    status("nvshmem_team_split_2d", |s| {
        into(row, INVALID)?;
        into(column, INVALID)?;
        let (row_members, column_members) = s.teams().team(parent)?.plane(width)?;
        // Every PE is in one row and one column; each makes its own at the same time as the others.
        into(row, s.split(parent, row_members, contexts(row_config, row_mask))?)?;
        into(column, s.split(parent, column_members, contexts(column_config, column_mask))?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_team_destroy(team: i32) {
    if team != INVALID {
        call("nvshmem_team_destroy", |s| s.destroy_team(team));
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_barrier(team: i32) -> c_int {
    status("nvshmem_barrier", |s| s.barrier(team))
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_barrier_on_stream(team: i32, stream: Stream) -> c_int {
    let launched = StreamCall::new(What::Barrier, team);
    status_or_launch("nvshmemx_barrier_on_stream", stream, Some(launched), |s| s.barrier(team))
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_barrier_all() {
    call("nvshmem_barrier_all", Session::barrier_all);
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_barrier_all_on_stream(stream: Stream) {
    let launched = StreamCall::new(What::Barrier, WORLD);
    on_or_launch("nvshmemx_barrier_all_on_stream", stream, Some(launched), Session::barrier_all);
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_team_sync(team: i32) -> c_int {
    status("nvshmem_team_sync", |s| s.teams().meet(team))
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_team_sync_on_stream(team: i32, stream: Stream) -> c_int {
    let launched = StreamCall::new(What::Meet, team);
    status_or_launch("nvshmemx_team_sync_on_stream", stream, Some(launched), |s| s.teams().meet(team))
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_sync_all() {
    call("nvshmem_sync_all", |s| s.teams().meet(WORLD));
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_sync_all_on_stream(stream: Stream) {
    let launched = StreamCall::new(What::Meet, WORLD);
    on_or_launch("nvshmemx_sync_all_on_stream", stream, Some(launched), |s| s.teams().meet(WORLD));
}
