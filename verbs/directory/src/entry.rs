//! What a store that knows no secret keeps of a queue pair: the name of its process, and a seal. Pure.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | `SVE` and the version of what follows |
//! | 1 | length of the name |
//! | so many | name of the process |
//! | 16 | seal: keyed BLAKE2s over the queue pair and all of the above |

use super::store_words::End;
use shunt_bootstrap::tcp::Secret;

/// Version of entries.
const VERSION: u8 = 1;
const MAGIC: [u8; 3] = *b"SVE";
const TAG_BYTES: usize = 16;
/// Longest entry, in bytes.
pub const ENTRY_MAX: usize = 4 + 1 + 255 + TAG_BYTES;

/// The name of a queue pair's entry: `qp-`, its GID in 32 hexadecimal digits, its number in 6.
pub fn key((gid, qpn): &End) -> String {
    let gid: String = gid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("qp-{gid}-{qpn:06x}")
}

fn tag(secret: &Secret, end: &End, body: &[u8]) -> [u8; TAG_BYTES] {
    secret.tag("verbs entries", &[&end.0[..], &end.1.to_be_bytes(), body].concat())
}

/// The entry of a queue pair. None if the name is empty or has more than 255 bytes.
pub fn seal(secret: &Secret, end: &End, name: &str) -> Option<Vec<u8>> {
    let length = u8::try_from(name.len()).ok().filter(|length| *length > 0)?;
    let mut bytes = [&MAGIC[..], &[VERSION, length], name.as_bytes()].concat();
    bytes.extend(tag(secret, end, &bytes));
    Some(bytes)
}

/// The name of a queue pair's process, by its entry.
///
/// # Errors
/// What the entry is instead.
pub fn open(secret: &Secret, end: &End, bytes: &[u8]) -> Result<String, String> {
    let no_entry = || "expected an entry of this library, got something else".to_owned();
    let (head, rest) = bytes.split_first_chunk::<4>().ok_or_else(no_entry)?;
    if head[..3] != MAGIC {
        return Err(no_entry());
    }
    if head[3] != VERSION {
        let got = head[3];
        return Err(format!(
            "expected an entry of version {VERSION}, got {got}; run the same Shunt at both ends"
        ));
    }
    let (body, seal) = bytes.split_last_chunk::<TAG_BYTES>().ok_or_else(no_entry)?;
    if !same(&tag(secret, end, body), seal) {
        return Err("expected an entry sealed by this secret for this queue pair, got another".to_owned());
    }
    let length = usize::from(rest[0]);
    let name = body.get(5..).filter(|name| name.len() == length && length > 0).ok_or_else(no_entry)?;
    String::from_utf8(name.to_vec()).map_err(|_| no_entry())
}

/// Compares without telling by its time where they differ.
fn same(a: &[u8; TAG_BYTES], b: &[u8; TAG_BYTES]) -> bool {
    a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: End = ([7; 16], 0x1234);

    fn secret(text: &str) -> Secret {
        Secret::from_text(text).unwrap()
    }

    #[test]
    fn an_entry_is_read_by_who_has_the_secret_and_for_its_queue_pair_alone() {
        let own = secret("sixteen letters!");
        let entry = seal(&own, &END, "10.0.0.1:7700").unwrap();
        assert_eq!(open(&own, &END, &entry).as_deref(), Ok("10.0.0.1:7700"));
        let foreign = "expected an entry sealed by this secret for this queue pair, got another";
        assert_eq!(open(&secret("seventeen letters"), &END, &entry).unwrap_err(), foreign);
        assert_eq!(open(&own, &([7; 16], 0x1235), &entry).unwrap_err(), foreign, "put under another name");
        for at in 4..entry.len() {
            let mut forged = entry.clone();
            forged[at] ^= 1;
            assert_eq!(open(&own, &END, &forged).unwrap_err(), foreign, "byte {at}");
        }
        assert!(seal(&own, &END, "").is_none() && seal(&own, &END, &"x".repeat(256)).is_none());
        assert_eq!(seal(&own, &END, &"x".repeat(255)).map(|entry| entry.len()), Some(ENTRY_MAX));
    }

    #[test]
    fn what_is_no_entry_or_of_another_version_is_said() {
        let own = secret("sixteen letters!");
        let mut newer = seal(&own, &END, "a").unwrap();
        newer[3] += 1;
        let told = "expected an entry of version 1, got 2; run the same Shunt at both ends";
        assert_eq!(open(&own, &END, &newer).unwrap_err(), told);
        for bytes in [&b""[..], b"SVE", b"SVE\x01", b"10.0.0.1:7700", &newer[1..], b"SVE\x01\x01a"] {
            let told = "expected an entry of this library, got something else";
            assert_eq!(open(&own, &END, bytes).unwrap_err(), told, "{bytes:?}");
        }
    }

    #[test]
    fn names_of_entries() {
        assert_eq!(key(&END), "qp-07070707070707070707070707070707-001234");
    }
}
