//! The port: whether there is a link.

use shunt_layout::mlx5::eqe;

/// The link of a port, and who took it away.
#[derive(Default)]
pub(crate) struct Port {
    /// The fault that took the link away, while it is away.
    down_by: Option<usize>,
    /// The interface that it sends through has no link.
    cut: bool,
}

impl Port {
    /// True if there is a link.
    #[inline]
    pub(crate) fn has_link(&self) -> bool {
        self.down_by.is_none() && !self.cut
    }

    /// The fault that has the link.
    pub(crate) fn down_by(&self) -> Option<usize> {
        self.down_by
    }

    /// A fault takes the link, or gives it back. The sub-type of the event, if others have another answer now.
    pub(crate) fn set_fault(&mut self, fault: Option<usize>) -> Option<u8> {
        self.change(|port| port.down_by = fault)
    }

    /// The interface that it sends through lost its link, or has it again. The same.
    pub(crate) fn set_carrier(&mut self, there: bool) -> Option<u8> {
        self.change(|port| port.cut = !there)
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) -> Option<u8> {
        let before = self.has_link();
        change(self);
        match (before, self.has_link()) {
            (true, false) => Some(eqe::port::DOWN),
            (false, true) => Some(eqe::port::ACTIVE),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_of_the_answer_is_an_event() {
        let mut port = Port::default();
        assert_eq!(port.set_carrier(true), None);
        assert_eq!(port.set_fault(Some(3)), Some(eqe::port::DOWN));
        assert_eq!((port.set_carrier(false), port.set_fault(None)), (None, None));
        assert_eq!(port.set_carrier(true), Some(eqe::port::ACTIVE));
    }
}
