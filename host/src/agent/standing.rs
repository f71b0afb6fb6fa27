//! How the paths of a channel stand that has a fault, in words, for the error message.

use super::words::{Place, StateWords};
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::state::{CauseKind, PathIdentity, PathRow, PathState};

/// `syndrome 0x15 transport retries exceeded, vendor 0x81`: the vendor's half where there is one.
pub fn syndrome_text(raw: u32) -> String {
    let (syndrome, vendor) = (Syndrome(raw as u8), raw >> 8 & 0xff);
    let text = format!("syndrome {:#04x} {}", syndrome.0, syndrome.meaning());
    if vendor == 0 { text } else { format!("{text}, vendor {vendor:#04x}") }
}

/// Every path of a channel to `peer`, with its row. `lost`: no path could be used for the give-up time, so that one
/// which is ready by now came too late.
pub fn standings(words: &StateWords, (peer, channel): (u32, u32), lost: bool) -> Vec<(String, PathRow)> {
    let me = words.root().my_pe;
    let of = |slot| {
        let row = words.read_row(Place { peer, channel, slot });
        let down = words.is_down(None, row.local_rail) || words.is_down(Some(peer), row.remote_rail);
        (standing((me, peer, slot), &row, down, lost), row)
    };
    (0..words.root().slots).map(of).collect()
}

fn standing((me, peer, slot): (u32, u32, u32), row: &PathRow, down: bool, lost: bool) -> String {
    let (state, failed) = (PathState::from_raw(row.state), row.first_cause != 0);
    let name = format!("{me}.{}>{peer}.{}", row.identity.local_rail, row.identity.remote_rail);
    let text = match state {
        PathState::Absent if row.identity == PathIdentity::EMPTY => {
            return format!(
                "backup {slot}  never usable: agents had not made it, or no pair of rails was left for it"
            );
        }
        PathState::Absent if down => return format!("{name}  never usable: a port of it was down"),
        PathState::Absent => return format!("{name}  never usable: its halves were not connected"),
        _ if down => "port down",
        PathState::Ready if lost && failed => "failed, not fenced yet",
        PathState::Ready if lost => return format!("{name}  ready by now, too late for this channel"),
        PathState::Ready => "ready",
        PathState::Fenced => "fenced",
        PathState::Released => "released",
        PathState::Probing => "probing",
        PathState::Retired => "retired",
        PathState::Leaving => "being taken out",
    };
    if !failed {
        return format!("{name}  {text}");
    }
    let (cause, syndrome) = (CauseKind::from_raw(row.first_cause >> 16), row.first_cause & 0xffff);
    format!("{name}  {text}  cause {}  {}", cause.name(), syndrome_text(syndrome))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(state: PathState, cause: CauseKind, syndrome: u32) -> PathRow {
        // SAFETY: a row is integers alone; zero is a value of each.
        let mut row: PathRow = unsafe { std::mem::zeroed() };
        (row.identity.local_rail, row.identity.remote_rail, row.identity.local_qpn) = (0, 1, 0x41);
        (row.state, row.first_cause) = (state as u32, (cause as u32) << 16 | syndrome);
        row
    }

    #[test]
    fn a_path_that_failed_has_state_cause_and_syndrome() {
        for (state, down, lost, want) in [
            (PathState::Fenced, false, true, "2.0>3.1  fenced  cause completion  syndrome 0x15 transport"),
            (PathState::Fenced, true, true, "2.0>3.1  port down  cause completion  syndrome 0x15 transport"),
            (PathState::Ready, false, true, "2.0>3.1  failed, not fenced yet  cause completion  syndrome"),
            (PathState::Ready, false, false, "2.0>3.1  ready  cause completion  syndrome 0x15 transport"),
        ] {
            let text = standing((2, 3, 0), &row(state, CauseKind::Completion, 0x8115), down, lost);
            assert!(text.starts_with(want) && text.ends_with("retries exceeded, vendor 0x81"), "{text}");
        }
        let fenced = standing((2, 3, 0), &row(PathState::Fenced, CauseKind::FencedByPeer, 0), false, true);
        assert_eq!(fenced, "2.0>3.1  fenced  cause fenced-by-peer  syndrome 0x00 no error completion");
    }

    /// Where no path could be used, none is listed as if it could be, and what never could be says so.
    #[test]
    fn an_error_that_says_that_no_path_is_left_lists_none_as_ready() {
        let ready = row(PathState::Ready, CauseKind::None, 0);
        let said = |row, down, lost| standing((2, 3, 1), row, down, lost);
        assert_eq!(said(&ready, false, true), "2.0>3.1  ready by now, too late for this channel");
        assert_eq!(said(&ready, false, false), "2.0>3.1  ready");
        assert_eq!(said(&ready, true, true), "2.0>3.1  port down");
        // A channel that ends notes a cause for rows that were never used, too.
        let absent = row(PathState::Absent, CauseKind::FencedByPeer, 0);
        assert_eq!(said(&absent, false, true), "2.0>3.1  never usable: its halves were not connected");
        assert_eq!(said(&absent, true, true), "2.0>3.1  never usable: a port of it was down");
        let none = PathRow { identity: PathIdentity::EMPTY, ..absent };
        assert!(said(&none, true, true).starts_with("backup 1  never usable: agents had not made it"));
    }
}
