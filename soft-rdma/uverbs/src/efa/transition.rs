//! Which changes of a queue pair's state are allowed, with which attributes: the table of the kernel's efa driver.

use crate::abi::ids::attribute as a;
use shunt_soft_nic::soft_srd::qp::{Service, State};

/// The state of a number; `None` for those that no soft EFA has.
pub fn state_of(number: u8) -> Option<State> {
    let all = [State::Reset, State::Init, State::Receives, State::Sends, State::Error];
    all.into_iter().find(|state| *state as u8 == number)
}

/// The attributes that a change needs, and those that it may have besides; `None` where there is no such change.
fn attributes(service: Service, from: State, to: State) -> Option<(u32, u32)> {
    let retries = if service == Service::Reliable { a::RNR_RETRIES } else { 0 };
    match (from, to) {
        (_, State::Reset) => Some((0, 0)),
        (State::Reset, State::Init) => Some((a::PKEY_INDEX | a::PORT | a::QKEY, 0)),
        (State::Reset, _) => None,
        (_, State::Error) => Some((0, 0)),
        (State::Init, State::Init) => Some((0, a::PKEY_INDEX | a::PORT | a::QKEY)),
        (State::Init, State::Receives) => Some((0, a::PKEY_INDEX | a::QKEY)),
        (State::Receives, State::Sends) => Some((a::SEND_PSN, a::CURRENT_STATE | a::QKEY | retries)),
        (State::Sends, State::Sends) => Some((0, a::CURRENT_STATE | a::QKEY)),
        _ => None,
    }
}

/// True if there is such a change, and these attributes are what it needs and may have.
pub fn allowed(service: Service, from: State, to: State, mask: u32) -> bool {
    attributes(service, from, to).is_some_and(|(required, optional)| {
        mask & required == required && mask & !(required | optional | a::STATE) == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_masks_of_unmodified_programs_fit() {
        let fits = |from, to, mask| allowed(Service::Reliable, from, to, mask);
        assert!(fits(State::Reset, State::Init, 0x71) && fits(State::Init, State::Receives, 1));
        assert!(fits(State::Receives, State::Sends, 0x1_0001));
        assert!(fits(State::Receives, State::Sends, 0x1_0801), "tries at a receiver that is not ready");
        assert!(!allowed(Service::Unreliable, State::Receives, State::Sends, 0x1_0801));
        assert!(!fits(State::Reset, State::Init, 0x31), "no key");
        assert!(!fits(State::Reset, State::Init, 0x79), "rights of a connection");
        assert!(fits(State::Sends, State::Error, 1) && fits(State::Error, State::Reset, 1));
    }

    #[test]
    fn changes_that_there_are_not() {
        for to in [State::Receives, State::Sends, State::Error] {
            assert!(!allowed(Service::Reliable, State::Reset, to, 1), "{to:?}");
        }
        assert!(!allowed(Service::Reliable, State::Init, State::Sends, 0x1_0001));
        assert!(!allowed(Service::Reliable, State::Error, State::Sends, 0x1_0001));
        assert_eq!((state_of(4), state_of(5), state_of(7)), (None, None, None), "SQD and SQE");
    }
}
