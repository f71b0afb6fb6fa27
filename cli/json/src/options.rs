//! The options of a command line, by name.

use clap::{ArgMatches, Command, CommandFactory};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Values of a program's options, by long name.
pub type Options = BTreeMap<String, OptionValue>;

/// The value of an option, as it would be typed. `true` or `false` for one without a value.
#[derive(Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OptionValue {
    /// One value.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// Every option and argument of a command line that has a value, defaults among them. Empty if it cannot be parsed.
pub(crate) fn options<P: CommandFactory>(
    line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Options {
    let (command, mut found) = (P::command(), Options::new());
    if let Ok(matches) = command.clone().try_get_matches_from(line) {
        collect(&command, &matches, &mut found);
    }
    found
}

fn collect(command: &Command, matches: &ArgMatches, found: &mut Options) {
    for argument in command.get_arguments() {
        let Ok(Some(values)) = matches.try_get_raw(argument.get_id().as_str()) else { continue };
        let mut values: Vec<String> = values.map(|value| value.to_string_lossy().into()).collect();
        let value = match values.len() {
            1 => OptionValue::One(values.remove(0)),
            _ => OptionValue::Many(values),
        };
        let name = argument.get_long().unwrap_or(argument.get_id().as_str());
        found.insert(name.to_owned(), value);
    }
    if let Some((name, matches)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        collect(command, matches, found);
    }
}
