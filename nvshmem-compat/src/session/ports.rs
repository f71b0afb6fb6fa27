//! What PEs tell each other of their ports: who shares them, and what the job is short of. Pure.

/// What a PE tells of its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// How many it takes.
    pub rails: u32,
    /// Those of its machine that can be used: who has the same has the same devices. Empty for soft NICs.
    pub identity: String,
}

impl Ports {
    /// As it is told.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.rails.to_le_bytes(), self.identity.as_bytes()].concat()
    }

    /// As it was told.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let Some((rails, identity)) = bytes.split_first_chunk::<4>() else { return Self::default() };
        let identity = String::from_utf8_lossy(identity).into_owned();
        Self { rails: u32::from_le_bytes(*rails), identity }
    }
}

/// PEs, by number, that share this machine's ports with `me`, itself among them.
pub fn mates(me: u32, nodes: &[u32], ports: &[Ports]) -> Vec<u32> {
    let of = |pe: usize| Some((nodes.get(pe)?, &ports.get(pe)?.identity));
    let same = |pe: &u32| of(*pe as usize) == of(me as usize);
    (0..nodes.len() as u32).filter(same).collect()
}

/// What a job that starts all the same is short of, by the ports of each PE: fault tolerance without a second port has
/// nowhere to go, and where one has fewer than the others a card, a cable or a setting is missing. `wish`: the variable
/// that says which ports there are.
pub fn shortages(tolerant: bool, ports: &[u32], wish: &str) -> Vec<String> {
    let most = ports.iter().copied().max().unwrap_or_default();
    let of = |count: u32| (0..).zip(ports).filter(|(_, has)| **has == count).map(|(pe, _)| pe).collect();
    let mut said = Vec::new();
    let poor: Vec<u32> = of(1);
    if tolerant && !poor.is_empty() && ports.len() > 1 {
        said.push(format!(
            "fault tolerance is on, and PEs {poor:?} have one port: they have no other path to go to \
             (NVSHMEM_ENABLE_MULTI_PORT, {wish})"
        ));
    }
    for few in 1..most {
        let pes: Vec<u32> = of(few);
        if !pes.is_empty() {
            said.push(format!(
                "PEs {pes:?} have fewer ports than others, {few} of {most}: channels to them have fewer paths \
                 ({wish})"
            ));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_is_short_of_is_said() {
        let shortages = |tolerant, ports: &[u32]| super::shortages(tolerant, ports, "SHUNT_SOFT_RAILS");
        assert!(shortages(true, &[2, 2]).is_empty() && shortages(true, &[1]).is_empty());
        assert!(shortages(false, &[1, 1]).is_empty(), "without fault tolerance one port is as usual");
        let said = shortages(true, &[2, 1, 2]);
        assert!(said.len() == 2 && said[0].contains("PEs [1] have one port"), "{said:?}");
        assert!(said[1].contains("PEs [1] have fewer ports than others, 1 of 2"), "{said:?}");
        assert!(said.iter().all(|line| line.contains("SHUNT_SOFT_RAILS")), "{said:?}");
        assert_eq!(shortages(true, &[3, 2, 3, 2]).len(), 1);
        assert_eq!(shortages(false, &[3, 2, 1]).len(), 2);
    }

    #[test]
    fn ports_are_shared_on_one_machine_by_those_who_see_the_same() {
        let ports = |identity: &str| Ports { rails: 2, identity: identity.to_owned() };
        let all = ["a b", "a b", "c d", "a b"].map(ports);
        assert_eq!(mates(0, &[0, 0, 0, 3], &all), [0, 1]);
        assert_eq!(mates(2, &[0, 0, 0, 3], &all), [2]);
        assert_eq!(mates(3, &[0, 0, 0, 3], &all), [3]);
        let soft = [ports(""), ports("")];
        assert_eq!(mates(1, &[0, 0], &soft), [0, 1]);
    }

    #[test]
    fn what_was_told_is_read_back() {
        let ports = Ports { rails: 3, identity: "0c42:a103 0c42:a104".to_owned() };
        assert_eq!(Ports::of_bytes(&ports.to_bytes()), ports);
        assert_eq!(Ports::of_bytes(&[1, 2]), Ports::default());
    }
}
