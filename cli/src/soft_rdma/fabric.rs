//! Which fabric is meant, and who is on it.

use shunt_soft_machine::control::{Client, Process, processes};

/// The fabric that is meant when none is named.
pub(super) fn default_fabric() -> String {
    let set = std::env::var(shunt_soft_machine::settings::FABRIC).ok().filter(|name| !name.is_empty());
    set.unwrap_or_else(|| "default".into())
}

/// Processes of a fabric that answer.
pub(super) fn alive(fabric: &str) -> Vec<(Process, Client)> {
    let connect = |process: Process| Client::connect(&process.socket).ok().map(|client| (process, client));
    processes(fabric).into_iter().filter_map(connect).collect()
}
