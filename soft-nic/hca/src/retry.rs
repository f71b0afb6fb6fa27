//! How often and how patiently a requester tries again.

/// `rnr_retry`: for ever.
const RNR_FOR_EVER: u32 = 7;

/// The retries of one requester.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retries {
    retry_count: u32,
    retries_left: u32,
    rnr_retry: u32,
    rnr_left: u32,
    /// 0: never.
    timeout_ns: u64,
    /// Its waits grow from retry to retry.
    adaptive: bool,
}

impl Retries {
    /// As many as software wants.
    pub(crate) fn new(retry_count: u32, rnr_retry: u32, timeout_ns: u64, adaptive: bool) -> Self {
        let (retries_left, rnr_left) = (retry_count, rnr_retry);
        Self { retry_count, retries_left, rnr_retry, rnr_left, timeout_ns, adaptive }
    }

    /// How long it waits before it sends again; `None`: for ever.
    #[inline]
    pub(crate) fn patience_ns(&self) -> Option<u64> {
        if self.timeout_ns == 0 {
            return None;
        }
        Some(match self.adaptive {
            // The schedule begins at an eighth of the timeout and doubles.
            true => (self.timeout_ns / 8).max(1) << (self.retry_count - self.retries_left).min(32),
            false => self.timeout_ns,
        })
    }

    /// There was progress: all are there again.
    #[inline]
    pub(crate) fn restore(&mut self) {
        self.retries_left = self.retry_count;
        self.rnr_left = self.rnr_retry;
    }

    /// Takes a retry. False if none is left.
    pub(crate) fn take(&mut self) -> bool {
        let any = self.retries_left > 0;
        self.retries_left -= any as u32;
        any
    }

    /// Takes one for a receiver that is not ready. False if none is left.
    pub(crate) fn take_rnr(&mut self) -> bool {
        let any = self.rnr_left > 0;
        self.rnr_left -= (any && self.rnr_retry != RNR_FOR_EVER) as u32;
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_used_up_and_come_back() {
        let mut retries = Retries::new(2, 1, 80, false);
        assert_eq!([retries.take(), retries.take(), retries.take()], [true, true, false]);
        assert_eq!([retries.take_rnr(), retries.take_rnr()], [true, false]);
        retries.restore();
        assert!(retries.take() && retries.take_rnr());
        let mut patient = Retries::new(0, RNR_FOR_EVER, 0, false);
        assert!((0..100).all(|_| patient.take_rnr()) && !patient.take());
        assert_eq!(patient.patience_ns(), None);
    }

    #[test]
    fn adaptive_waits_double() {
        let mut retries = Retries::new(7, 0, 80, true);
        let waits = [0, 1, 2].map(|_| {
            let wait = retries.patience_ns();
            retries.take();
            wait
        });
        assert_eq!(waits, [Some(10), Some(20), Some(40)]);
    }
}
