//! Which family a function of NVSHMEM's host interface belongs to, by its name, and why one is not there.

/// Families, in the order of the table.
pub const FAMILIES: &[&str] = &[
    "init and finalize",
    "unique id and attributes",
    "who, how many, versions",
    "symmetric heap",
    "registered buffers",
    "teams",
    "put, get",
    "p, g",
    "iput, iget",
    "put with signal",
    "signals",
    "atomics",
    "wait_until, test",
    "quiet, fence, flush",
    "barrier, sync",
    "broadcast, fcollect, alltoall",
    "reductions",
    "collective launch, modules",
    "queue pairs, regions",
    "diagnostics of the library itself",
    "Shunt's own",
];

/// The family of a function; on a stream or not.
pub fn family(name: &str) -> &'static str {
    let bare = name.strip_suffix("_on_stream").unwrap_or(name);
    let has = |words: &[&str]| words.iter().any(|word| bare.contains(word));
    let ends = |words: &[&str]| words.iter().any(|word| bare.ends_with(word));
    let number = match () {
        () if bare.starts_with("shunt_") => 20,
        () if has(&["uniqueid", "set_attr"]) && !has(&["team"]) => 1,
        () if has(&["cumodule", "culibrary", "collective_launch"]) => 17,
        () if has(&["_qp_", "region_", "_smem"]) => 18,
        () if has(&["debug", "nvtx", "nvshmem_options", "selected_device"]) => 19,
        () if has(&["init", "finalize", "query_thread", "global_exit"]) && !has(&["team"]) => 0,
        () if has(&["my_pe", "n_pes", "info"]) && !has(&["team"]) => 2,
        () if has(&["buffer_"]) => 4,
        () if ends(&["_malloc", "_calloc", "_align", "_free", "_ptr"]) => 3,
        () if has(&["barrier", "sync"]) => 14,
        () if has(&["_team_"]) => 5,
        () if has(&["_atomic_"]) => 11,
        () if has(&["put"]) && has(&["_signal"]) => 9,
        () if has(&["signal_"]) => 10,
        () if has(&["wait_until", "_test"]) => 12,
        () if has(&["quiet", "fence", "flush"]) => 13,
        () if has(&["reduce"]) => 16,
        () if has(&["broadcast", "fcollect", "alltoall"]) => 15,
        () if has(&["iput", "iget"]) => 8,
        () if has(&["put", "get"]) => 6,
        () if ends(&["_p", "_g"]) => 7,
        () => 19,
    };
    FAMILIES[number]
}

/// Functions of NVSHMEM's that are not there, and why. A name that ends with `*` stands for all that begin so.
pub const ABSENT: &[(&str, &str)] = &[
    ("nvshmem_debug_log", "writes NVSHMEM's own log, which this library has not; see SHUNT_EVENTS"),
    (
        "nvshmemx_collective_launch*",
        "starts kernels of the program, which has them from libnvshmem_device.a: there, all of them",
    ),
    ("nvshmemx_signal_counted_reset", "counted signals are written by device code of NVSHMEM 3.8 alone"),
    ("nvshmemx_team_get_uniqueid", "teams that are made by parts; a split makes them at once"),
    ("nvshmemx_team_init", "teams that are made by parts; a split makes them at once"),
];

/// Why a function is not there, by such a list.
pub fn reason(absent: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    absent.iter().find(|(pattern, _)| fits(pattern)).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_family() {
        for (name, want) in [
            ("nvshmem_float_put", "put, get"),
            ("nvshmemx_put128_nbi_on_stream", "put, get"),
            ("nvshmemx_uint_put_signal_nbi_on_stream", "put with signal"),
            ("nvshmem_bfloat16_p", "p, g"),
            ("nvshmem_iget8", "iput, iget"),
            ("nvshmem_int_atomic_fetch_add", "atomics"),
            ("nvshmemx_team_sync_on_stream", "barrier, sync"),
            ("nvshmem_team_my_pe", "teams"),
            ("nvshmem_my_pe", "who, how many, versions"),
            ("nvshmemx_team_init", "teams"),
            ("nvshmemx_init_status", "init and finalize"),
            ("nvshmemx_set_attr_uniqueid_args", "unique id and attributes"),
            ("nvshmem_size_and_reducescatter", "reductions"),
            ("nvshmem_alltoallmem", "broadcast, fcollect, alltoall"),
            ("nvshmemx_short_wait_until_all_on_stream", "wait_until, test"),
            ("nvshmemx_signal_op_on_stream", "signals"),
            ("nvshmem_ptr", "symmetric heap"),
            ("shunt_nvshmem_last_error", "Shunt's own"),
        ] {
            assert_eq!(family(name), want, "{name}");
        }
    }

    #[test]
    fn reasons_are_by_name_or_by_beginning() {
        let given = |name| reason(ABSENT, name).is_some();
        assert!(given("nvshmemx_collective_launch_attr") && given("nvshmemx_team_init"));
        assert!(!given("nvshmem_float_put") && !given("nvshmemx_team_init_more"));
    }
}
