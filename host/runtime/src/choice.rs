//! What `SHUNT_NIC` comes to on a machine. Pure.

use shunt_host::config::NicKind;
use shunt_host::discover::{PortState, RdmaDevice};

/// What carries the packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// Devices of libibverbs.
    Mlx5,
    /// Software, and why.
    Soft(String),
}

/// A device, and the states of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// Of port 1, 2, ...
    pub states: Vec<PortState>,
}

impl From<&RdmaDevice> for Seen {
    fn from(device: &RdmaDevice) -> Self {
        let states = device.ports.iter().map(|port| port.state).collect();
        Self { name: device.name.clone(), states }
    }
}

impl Seen {
    /// Whether a port of it carries packets.
    pub fn is_active(&self) -> bool {
        self.states.contains(&PortState::Active)
    }

    fn shown(&self) -> String {
        let ports = (1..).zip(&self.states).map(|(port, state)| format!("{}:{port} {state}", self.name));
        ports.collect::<Vec<_>>().join(", ")
    }
}

/// Devices were asked for, and there are none that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "SHUNT_NIC=mlx5: expected a device with an ACTIVE port that libibverbs opens, got none: {0}; `shunt doctor` says \
     what is missing, SHUNT_NIC=soft takes software NICs"
)]
pub struct NoDevice(pub String);

/// Chooses. `verbs`: whether libibverbs opens one of the devices with an active port, or what it says.
///
/// # Errors
/// Devices are asked for by name, and none can be used.
pub fn choose(asked: NicKind, devices: &[Seen], verbs: &Result<(), String>) -> Result<Chosen, NoDevice> {
    let why_not = match (asked, verbs) {
        (NicKind::Soft, _) => return Ok(Chosen::Soft("SHUNT_NIC=soft asks for them".to_owned())),
        // Where a device is expected, the words of libibverbs say what is missing.
        (NicKind::Mlx5, Err(said)) if devices.is_empty() => said.clone(),
        _ if devices.is_empty() => "libibverbs lists no device".to_owned(),
        _ if !devices.iter().any(Seen::is_active) => {
            let shown: Vec<String> = devices.iter().map(Seen::shown).collect();
            format!("no port is ACTIVE ({})", shown.join(", "))
        }
        (_, Err(said)) => said.clone(),
        (_, Ok(())) => return Ok(Chosen::Mlx5),
    };
    if asked == NicKind::Mlx5 { Err(NoDevice(why_not)) } else { Ok(Chosen::Soft(why_not)) }
}

/// The line that says that NICs are software, and why.
pub fn software(why: &str) -> String {
    format!("NICs: software, because {why}; this machine only")
}

/// The line that says which devices are used.
pub fn through_libibverbs(devices: &[String]) -> String {
    format!("NICs: {} through libibverbs", devices.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use PortState::{Active, Down, Init};

    fn seen(devices: &[&[PortState]]) -> Vec<Seen> {
        let device = |(number, states): (usize, &&[PortState])| Seen {
            name: format!("mlx5_{number}"),
            states: states.to_vec(),
        };
        devices.iter().enumerate().map(device).collect()
    }

    fn soft(asked: NicKind, devices: &[&[PortState]], verbs: Result<(), &str>) -> String {
        match choose(asked, &seen(devices), &verbs.map_err(str::to_owned)) {
            Ok(Chosen::Soft(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    fn refused(devices: &[&[PortState]], verbs: Result<(), &str>) -> String {
        let chosen = choose(NicKind::Mlx5, &seen(devices), &verbs.map_err(str::to_owned));
        chosen.unwrap_err().to_string()
    }

    #[test]
    fn auto_takes_devices_where_one_works() {
        for devices in [&[&[Active][..]][..], &[&[Down], &[Active]], &[&[Down, Active]]] {
            for asked in [NicKind::Auto, NicKind::Mlx5] {
                assert_eq!(choose(asked, &seen(devices), &Ok(())), Ok(Chosen::Mlx5), "{devices:?}");
            }
        }
    }

    #[test]
    fn auto_says_why_it_takes_software() {
        assert_eq!(soft(NicKind::Auto, &[], Ok(())), "libibverbs lists no device");
        assert_eq!(soft(NicKind::Auto, &[], Err("not there")), "libibverbs lists no device");
        let down = soft(NicKind::Auto, &[&[Down], &[Init, Down]], Ok(()));
        assert_eq!(down, "no port is ACTIVE (mlx5_0:1 DOWN, mlx5_1:1 INIT, mlx5_1:2 DOWN)");
        assert_eq!(soft(NicKind::Auto, &[&[]], Ok(())), "no port is ACTIVE ()");
        let said = soft(NicKind::Auto, &[&[Active]], Err("mlx5_0: cannot be opened"));
        assert_eq!(said, "mlx5_0: cannot be opened");
    }

    #[test]
    fn software_is_taken_where_it_is_asked_for_whatever_there_is() {
        assert_eq!(soft(NicKind::Soft, &[&[Active]], Ok(())), "SHUNT_NIC=soft asks for them");
    }

    #[test]
    fn devices_that_are_asked_for_and_not_there_are_an_error() {
        let cases: [(String, &str); 4] = [
            (refused(&[], Ok(())), "libibverbs lists no device"),
            (refused(&[], Err("libibverbs.so.1 is missing")), "libibverbs.so.1 is missing"),
            (refused(&[&[Down]], Ok(())), "mlx5_0:1 DOWN"),
            (refused(&[&[Active]], Err("mlx5_0: permission denied")), "mlx5_0: permission denied"),
        ];
        for (said, part) in cases {
            assert!(said.starts_with("SHUNT_NIC=mlx5: expected ") && said.contains(part), "{said}");
            assert!(said.contains("SHUNT_NIC=soft"), "{said}");
        }
    }
}
