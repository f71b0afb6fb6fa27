//! Faults at the NICs of one end.

use crate::options::fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shunt::soft_nic::RailAt;
use shunt::soft_nic::fault::Injection;
use shunt_transfer::Carriers;

/// A fault that was injected.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Struck {
    /// As it was typed.
    pub fault: String,
    /// How often it struck.
    pub hits: u64,
}

/// Faults that were planned, each with its number.
#[derive(Debug, Default)]
pub struct Planned(Vec<(String, usize)>);

impl Planned {
    /// Plans those of one end. Their time runs from now.
    ///
    /// # Errors
    /// There is no such NIC in this process, or it does not fail on request.
    pub fn begin(injections: &[Injection], end: u32, nics: &Carriers) -> Result<Self, String> {
        let own = injections.iter().filter(|injection| injection.pe == end);
        let plan = |injection: &Injection| {
            let at = RailAt { pe: end, rail: injection.rail.unwrap_or_default() };
            let number = nics.inject_in(injection.at_ns, at, fault(injection)?)?;
            Ok((injection.to_string(), number))
        };
        own.map(plan).collect::<Result<_, _>>().map(Self)
    }

    /// How often each struck until now.
    ///
    /// # Errors
    /// Who counts does not answer.
    pub fn struck(self, nics: &Carriers) -> Result<Vec<Struck>, String> {
        let hits = nics.hits()?;
        let struck =
            |(fault, number): (String, usize)| Struck { fault, hits: hits.get(number).copied().unwrap_or(0) };
        Ok(self.0.into_iter().map(struck).collect())
    }
}
