//! Which events of ports and devices a program is not told. Pure.

use shunt_mlx5_sys::{IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, ibv_event_type};

/// Ports whose failure the program was not told, by context and number.
#[derive(Debug, Default)]
pub struct Withheld(Vec<(usize, i32)>);

impl Withheld {
    /// None.
    pub const fn empty() -> Self {
        Self(Vec::new())
    }

    /// True if this event is not told. The failure of a port or device is not while all of the program on it `outlives`
    /// that. The return of a port is told to who was told of its failure.
    pub fn takes(
        &mut self,
        context: usize,
        port: i32,
        kind: ibv_event_type,
        outlives: impl FnOnce() -> bool,
    ) -> bool {
        let known = self.0.iter().position(|one| *one == (context, port));
        match kind {
            IBV_EVENT_PORT_ERR => {
                let takes = outlives();
                match known {
                    Some(at) if !takes => _ = self.0.swap_remove(at),
                    None if takes => self.0.push((context, port)),
                    _ => {}
                }
                takes
            }
            IBV_EVENT_PORT_ACTIVE => known.map(|at| self.0.swap_remove(at)).is_some(),
            IBV_EVENT_DEVICE_FATAL => outlives(),
            _ => false,
        }
    }

    /// A context is closed: its address may be that of another next.
    pub fn forget(&mut self, context: usize) {
        self.0.retain(|one| one.0 != context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_mlx5_sys::{IBV_EVENT_GID_CHANGE, IBV_EVENT_QP_FATAL};

    /// Mooncake ends all its connections when it is told that a port is down, those that had been moved as well.
    #[test]
    fn a_port_that_is_outlived_is_not_told_and_its_return_is_told_to_who_knows_of_its_failure() {
        let (yes, no) = (|| true, || false);
        let mut withheld = Withheld::empty();
        assert!(!withheld.takes(1, 1, IBV_EVENT_PORT_ACTIVE, yes), "nothing was withheld");
        assert!(
            withheld.takes(1, 1, IBV_EVENT_PORT_ERR, yes) && withheld.takes(1, 1, IBV_EVENT_PORT_ERR, yes)
        );
        assert!(!withheld.takes(2, 1, IBV_EVENT_PORT_ACTIVE, yes), "that of another context");
        assert!(withheld.takes(1, 1, IBV_EVENT_PORT_ACTIVE, no), "whatever became of the queue pairs");
        assert!(!withheld.takes(1, 1, IBV_EVENT_PORT_ACTIVE, yes), "once");
        assert!(
            !withheld.takes(1, 1, IBV_EVENT_PORT_ERR, no)
                && !withheld.takes(1, 1, IBV_EVENT_PORT_ACTIVE, yes)
        );
        assert!(
            withheld.takes(1, 0, IBV_EVENT_DEVICE_FATAL, yes)
                && !withheld.takes(1, 0, IBV_EVENT_DEVICE_FATAL, no)
        );
        assert!(
            [IBV_EVENT_QP_FATAL, IBV_EVENT_GID_CHANGE]
                .into_iter()
                .all(|kind| !withheld.takes(1, 1, kind, yes))
        );
    }

    #[test]
    fn what_was_withheld_of_a_context_goes_with_it() {
        let mut withheld = Withheld::empty();
        assert!(withheld.takes(1, 1, IBV_EVENT_PORT_ERR, || true));
        withheld.forget(1);
        assert!(!withheld.takes(1, 1, IBV_EVENT_PORT_ACTIVE, || true));
    }

    #[test]
    fn a_failure_that_is_told_after_one_that_was_not_takes_the_return_with_it() {
        let mut withheld = Withheld::empty();
        assert!(withheld.takes(1, 1, IBV_EVENT_PORT_ERR, || true));
        assert!(!withheld.takes(1, 1, IBV_EVENT_PORT_ERR, || false));
        assert!(!withheld.takes(1, 1, IBV_EVENT_PORT_ACTIVE, || true));
    }
}
