//! Warnings to the user who runs the program.

/// Says a warning: through `tracing` if the program listens there, else on stderr.
pub fn say(line: &str) {
    let silent = tracing::dispatcher::get_default(|to| to.is::<tracing::subscriber::NoSubscriber>());
    match silent {
        true => shunt_settings::complain!("shunt: {line}"),
        false => tracing::warn!(target: "shunt", "{line}"),
    }
}
