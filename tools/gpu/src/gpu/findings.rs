//! What is wrong with PTX, by all that look at its text.

use super::audit::Module;
use super::{divergence, flow};
use anyhow::Result;

/// What is found in PTX text, one line each.
pub fn of_text(text: &str) -> Result<Vec<String>> {
    let mut faults = Module::parse(text).faults();
    faults.extend(divergence::findings(&flow::read(text)?));
    Ok(faults)
}
