//! In which order a NIC places what is written, and which order policy follows (pure). PRM: "QP Ordering Semantics".
//!
//! A network that routes adaptively delivers packets out of order, and an administrator may have switched that on for
//! queue pairs that do not ask for it. What counts is the NIC's word: `qpc.data_in_order` of a queue pair in RTS, which
//! a NIC with the capability `qp_data_in_order` reports (rdma-core asks the same for `ibv_query_qp_data_in_order`).

use super::atomics::Atomics;
use crate::error::NicError;
use shunt_layout::state::OrderPolicy;

/// What a NIC says of order in its capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCaps {
    /// `qp_data_in_order`: QUERY_QP reports whether a queue pair keeps the order.
    pub reported: bool,
    /// `dp_ordering_force`: the order that a queue pair asks for wins over the administrator's.
    pub forced: bool,
    /// `dp_ordering_ooo_rw_rc` or `dp_ordering_ooo_all_rc`: it can place what such a connection carries out of order.
    pub out_of_order: bool,
}

/// What was seen of a queue pair in RTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// QUERY_QP says `data_in_order` 1, or nobody could be asked: each path is asked again when it is connected.
    InOrder,
    /// It says 0.
    Reported,
    /// A flag was seen before the data written ahead of it.
    Measured,
}

/// The policy of a rail, and why it is weaker than the strictest; nothing if it is not, or was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The policy.
    pub policy: OrderPolicy,
    /// For the log.
    pub why: Option<String>,
}

/// Why a policy is not to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the NIC says or shows.
    pub met: String,
    /// What would do.
    pub want: &'static str,
    /// What to do.
    pub cure: &'static str,
}

impl Refusal {
    /// The same as an error of that NIC.
    pub fn of(self, nic: &str) -> NicError {
        let Self { met, want, cure } = self;
        NicError::Unfit { nic: nic.to_owned(), what: "placement", met, want, cure }
    }
}

/// What a path must say in the strict and the relaxed order.
pub(crate) const IN_ORDER: &str = "data_in_order 1 in RTS";
/// What to do where it does not.
pub(crate) const CURE: &str = "set SHUNT_ORDERING=unordered or leave it unset, or switch adaptive routing off for the \
    service level of NVSHMEM_IB_SL";

/// Why a NIC's queue pairs cannot be taken to keep the order.
fn doubt(caps: OrderCaps, seen: Seen) -> Option<String> {
    match (caps.reported, seen) {
        (_, Seen::Measured) => Some("out of order, which QUERY_QP denies".into()),
        (false, _) => Some("unknown (no capability qp_data_in_order)".into()),
        (true, Seen::InOrder) => None,
        (true, Seen::Reported) => Some(format!(
            "out of order (data_in_order 0 in RTS{})",
            if caps.forced { ", though dp_ordering_force asked for 1" } else { "" }
        )),
    }
}

/// The policy that follows from what was asked for and what the NIC says.
///
/// # Errors
/// What was asked for, or the only policy that is left, is not to be had.
pub fn choose(
    asked: Option<OrderPolicy>,
    caps: OrderCaps,
    seen: Seen,
    atomics: Atomics,
) -> Result<Chosen, Refusal> {
    let doubt = doubt(caps, seen);
    let policy = match (asked, &doubt) {
        (Some(OrderPolicy::Unordered), _) | (None, Some(_)) => OrderPolicy::Unordered,
        (Some(_), Some(doubt)) => {
            return Err(Refusal { met: doubt.clone(), want: IN_ORDER, cure: CURE });
        }
        (Some(asked), None) => asked,
        (None, None) => OrderPolicy::Strict,
    };
    if policy == OrderPolicy::Unordered && !atomics.masked {
        let met = doubt.unwrap_or_else(|| "to be unordered".into());
        let met = format!("{met} and there are no masked atomics");
        return Err(Refusal {
            met,
            want: "masked atomics, which carry signals in the unordered mode, or data_in_order 1",
            cure: "take another NIC or function",
        });
    }
    let why = doubt.filter(|_| asked.is_none()).map(|doubt| {
        format!(
            "placement is {doubt}: signals go as atomics (SHUNT_ORDERING=unordered; strict would be refused)"
        )
    });
    Ok(Chosen { policy, why })
}

/// The order of a PE, as its card tells it: its policy, and whether that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stance {
    /// Policy.
    pub policy: OrderPolicy,
    /// It was asked for: nothing else will do.
    pub asked: bool,
}

impl Stance {
    const ASKED: u32 = 0x100;

    /// As a card holds it.
    pub fn to_raw(self) -> u32 {
        self.policy as u32 | if self.asked { Self::ASKED } else { 0 }
    }

    /// Back again.
    pub fn from_raw(raw: u32) -> Self {
        Self { policy: OrderPolicy::from_raw(raw & !Self::ASKED), asked: raw & Self::ASKED != 0 }
    }
}

/// The policy of a job: the weakest of all PEs, or the first PE that will not have it.
pub fn agree(stances: &[Stance]) -> Result<OrderPolicy, usize> {
    let weakest = stances.iter().map(|stance| stance.policy as u32).max().unwrap_or(0);
    let stubborn = |stance: &Stance| stance.asked && stance.policy as u32 != weakest;
    match stances.iter().position(stubborn) {
        Some(at) => Err(at),
        None => Ok(OrderPolicy::from_raw(weakest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OrderPolicy::{Relaxed, Strict, Unordered};
    use Seen::{InOrder, Measured, Reported};

    const ALL: OrderCaps = OrderCaps { reported: true, forced: true, out_of_order: true };
    const MASKED: Atomics = Atomics { masked: true };

    fn policy(asked: Option<OrderPolicy>, caps: OrderCaps, seen: Seen) -> Result<OrderPolicy, String> {
        choose(asked, caps, seen, MASKED).map(|chosen| chosen.policy).map_err(|refusal| refusal.met)
    }

    #[test]
    fn order_is_what_a_queue_pair_in_rts_says() {
        assert_eq!(policy(None, ALL, InOrder), Ok(Strict));
        assert_eq!(policy(Some(Relaxed), ALL, InOrder), Ok(Relaxed));
        assert_eq!(policy(None, ALL, Reported), Ok(Unordered));
        assert_eq!(policy(Some(Unordered), ALL, InOrder), Ok(Unordered));
        assert_eq!(policy(None, ALL, Measured), Ok(Unordered), "what is seen counts more than what is said");
        let silent = OrderCaps { reported: false, ..ALL };
        assert_eq!(policy(None, silent, InOrder), Ok(Unordered), "a bit that no NIC reports says nothing");
    }

    #[test]
    fn strict_that_was_asked_for_is_never_weakened() {
        let silent = OrderCaps { reported: false, ..ALL };
        for asked in [Strict, Relaxed] {
            assert_eq!(
                policy(Some(asked), silent, InOrder),
                Err("unknown (no capability qp_data_in_order)".into())
            );
            let met = policy(Some(asked), ALL, Reported).unwrap_err();
            assert_eq!(met, "out of order (data_in_order 0 in RTS, though dp_ordering_force asked for 1)");
        }
        let Refusal { cure, .. } = choose(Some(Strict), silent, Reported, MASKED).unwrap_err();
        assert!(cure.contains("SHUNT_ORDERING=unordered") && cure.contains("NVSHMEM_IB_SL"), "{cure}");
    }

    #[test]
    fn what_is_weaker_is_said_unless_it_was_asked_for() {
        let why = |asked, seen| choose(asked, ALL, seen, MASKED).unwrap().why;
        assert!(why(None, Reported).is_some_and(|why| why.contains("signals go as atomics")));
        assert_eq!((why(None, InOrder), why(Some(Unordered), Reported)), (None, None));
    }

    #[test]
    fn signals_that_are_atomics_need_masked_ones() {
        let bare = Atomics { masked: false };
        assert_eq!(choose(None, ALL, InOrder, bare).unwrap().policy, Strict);
        for asked in [None, Some(Unordered)] {
            let Refusal { met, want, .. } = choose(asked, ALL, Reported, bare).unwrap_err();
            assert!(
                met.starts_with("out of order (data_in_order 0") && want.contains("masked atomics"),
                "{met}"
            );
        }
    }

    #[test]
    fn a_job_has_one_policy_the_weakest_of_all() {
        let of = |policy, asked| Stance { policy, asked };
        assert_eq!(agree(&[of(Strict, false), of(Unordered, false)]), Ok(Unordered));
        assert_eq!(agree(&[of(Strict, true), of(Strict, false)]), Ok(Strict));
        assert_eq!(agree(&[of(Unordered, false), of(Strict, true)]), Err(1));
        assert_eq!(agree(&[of(Relaxed, true), of(Strict, false)]), Ok(Relaxed));
        for stance in [of(Strict, true), of(Unordered, false), of(Relaxed, true)] {
            assert_eq!(Stance::from_raw(stance.to_raw()), stance);
        }
    }
}
