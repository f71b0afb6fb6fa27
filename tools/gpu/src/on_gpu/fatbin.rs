//! For which architectures a program carries machine code: containers of NVIDIA's in its file. Pure.

use std::collections::BTreeSet;

const MAGIC: [u8; 4] = 0xba55_ed50u32.to_le_bytes();
/// An entry that is machine code; others are PTX.
const MACHINE_CODE: u16 = 2;

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(width)?)?;
    Some(part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Architectures of each container in a file: 80, 90 and so on. What is cut short is as far as it goes.
pub fn containers(file: &[u8]) -> Vec<BTreeSet<u64>> {
    let starts = (0..file.len()).step_by(8).filter(|at| file[*at..].starts_with(&MAGIC));
    starts.map(|at| entries(file, at).unwrap_or_default()).collect()
}

/// Of one: a head (magic, version, bytes of the head, bytes behind it), then entries, each with a head of its own.
fn entries(file: &[u8], at: usize) -> Option<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    let mut entry = at + number(file, at + 6, 2)? as usize;
    let end = entry.checked_add(number(file, at + 8, 8)? as usize)?;
    while entry < end {
        let kind = number(file, entry, 2)? as u16;
        let (head, body) = (number(file, entry + 4, 4)? as usize, number(file, entry + 8, 8)? as usize);
        if kind == MACHINE_CODE {
            found.insert(number(file, entry + 28, 4)?);
        }
        entry = entry.checked_add(head.checked_add(body)?)?;
        if head == 0 {
            return None;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(entries: &[(u16, u32)]) -> Vec<u8> {
        let body: Vec<u8> = entries
            .iter()
            .flat_map(|(kind, arch)| {
                let mut entry = vec![0u8; 64 + 16];
                entry[..2].copy_from_slice(&kind.to_le_bytes());
                entry[4..8].copy_from_slice(&64u32.to_le_bytes());
                entry[8..16].copy_from_slice(&16u64.to_le_bytes());
                entry[28..32].copy_from_slice(&arch.to_le_bytes());
                entry
            })
            .collect();
        let mut whole = MAGIC.to_vec();
        whole.extend([1, 0, 16, 0]);
        whole.extend((body.len() as u64).to_le_bytes());
        whole.extend(body);
        whole
    }

    #[test]
    fn architectures_are_those_of_machine_code() {
        let mut file = vec![0u8; 24];
        file.extend(container(&[(2, 80), (2, 90), (1, 100)]));
        file.extend(container(&[(2, 100)]));
        assert_eq!(containers(&file), [BTreeSet::from([80, 90]), BTreeSet::from([100])]);
    }

    #[test]
    fn what_is_no_container_or_cut_short_has_none() {
        assert!(containers(b"nothing of the kind").is_empty());
        let whole = container(&[(2, 90)]);
        assert_eq!(containers(&whole[..20]), [BTreeSet::new()]);
        let mut endless = whole;
        endless[16 + 4..16 + 16].fill(0);
        assert_eq!(containers(&endless), [BTreeSet::new()]);
    }
}
