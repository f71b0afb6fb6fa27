//! Options that every program on the transfer engine has. Whatever cannot be honoured is refused, never ignored.

use clap::Args;
use shunt::soft_nic::FaultKind;
use shunt::soft_nic::fault::{Fault, Injection};
use shunt_figures::units::{parse_gbps, whole};
use shunt_settings::NicKind;
use std::path::PathBuf;

/// Rails, NICs, their faults, and the file of the verdict.
#[derive(Args, Clone, Debug)]
pub struct NicOptions {
    /// Rails of each end
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole(1..=8))]
    pub rails: u32,
    /// What carries the packets [default: SHUNT_NIC, else soft]
    #[arg(long, value_name = "NIC")]
    pub nic: Option<NicKind>,
    /// Rate of each rail in Gb/s, of NICs in software [default: 1]
    #[arg(long, value_name = "G", value_parser = parse_gbps)]
    pub rail_gbps: Option<f64>,
    /// A fault, as in 500ms:0.0:down: when, end and rail, what; repeatable. NICs in software fail on request
    #[arg(long, value_name = "FAULT", allow_hyphen_values = true)]
    pub inject: Vec<Injection>,
    /// Writes the verdict to this file, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl NicOptions {
    /// What carries the packets: as was asked, else as the variable says.
    ///
    /// # Errors
    /// The variable names none.
    pub fn kind(&self, lookup: &dyn Fn(&str) -> Option<String>) -> Result<NicKind, String> {
        let variable = NicKind::from_lookup(lookup).map_err(|error| error.to_string())?;
        Ok(self.nic.or(variable).unwrap_or(NicKind::Soft))
    }

    /// Whether each fault is one of a NIC, at a rail of one of so many ends.
    ///
    /// # Errors
    /// What is wrong with the first that is not.
    pub fn check_faults(&self, ends: u32) -> Result<(), String> {
        for injection in &self.inject {
            fault(injection)?;
            let Injection { pe, rail, .. } = injection;
            if *pe >= ends || rail.is_none_or(|rail| rail >= self.rails) {
                let (end, last) = (ends - 1, self.rails - 1);
                let which = if end == 1 { "end 0 or 1".to_owned() } else { format!("end 0 to {end}") };
                let at = rail.map_or_else(|| pe.to_string(), |rail| format!("{pe}.{rail}"));
                return Err(format!("--inject {injection}: expected {which} and rail 0 to {last}, got {at}"));
            }
        }
        Ok(())
    }
}

/// What a fault does to a NIC.
///
/// # Errors
/// It is of another kind.
pub fn fault(injection: &Injection) -> Result<FaultKind, String> {
    match &injection.fault {
        Fault::Nic(kind) if !injection.fault.is_sabotage() => Ok(*kind),
        fault => Err(format!(
            "--inject {injection}: expected a fault of a NIC such as down, up or drop-acks=10ms, got {}",
            fault.name()
        )),
    }
}
