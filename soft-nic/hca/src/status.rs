//! Why firmware refuses a command: status code, and a stable syndrome of our own.
//!
//! Real syndromes are firmware-internal numbers that nobody publishes. These are this NIC's; they never
//! change their meaning.

use shunt_layout::mlx5::prm::cmd::{Status, output};

/// A refused command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    UnknownOpcode,
    InputLength,
    OutputLength,
    NoSuchPd,
    PdBusy,
    NoSuchMkey,
    MkeyAccessMode,
    NoSuchUmem,
    OutsideUmem,
    NoSuchCq,
    CqBusy,
    CqShape,
    NoSuchUar,
    NoSuchQp,
    QpService,
    QpShape,
    QpReceiveQueue,
    Unaligned,
    QpState,
    PathMigration,
    PathMtu,
    ReadDepth,
    BadCapability,
    BadGidIndex,
    MessageSize,
    EmptyMkey,
    NoSuchRmp,
    RmpBusy,
    RmpShape,
    PoolDomain,
    NumbersUsedUp,
    MkeyTranslations,
    BadPkeyIndex,
    NoForceLoopback,
    NoSuchClock,
    UmemPage,
    NoSuchOrder,
    NoEce,
    NoSuchEce,
    EceSettled,
    NoSuchDct,
    DctShape,
}

impl Refusal {
    pub(crate) const ALL: &[Self] = &[
        Self::UnknownOpcode,
        Self::InputLength,
        Self::OutputLength,
        Self::NoSuchPd,
        Self::PdBusy,
        Self::NoSuchMkey,
        Self::MkeyAccessMode,
        Self::NoSuchUmem,
        Self::OutsideUmem,
        Self::NoSuchCq,
        Self::CqBusy,
        Self::CqShape,
        Self::NoSuchUar,
        Self::NoSuchQp,
        Self::QpService,
        Self::QpShape,
        Self::QpReceiveQueue,
        Self::Unaligned,
        Self::QpState,
        Self::PathMigration,
        Self::PathMtu,
        Self::ReadDepth,
        Self::BadCapability,
        Self::BadGidIndex,
        Self::MessageSize,
        Self::EmptyMkey,
        Self::NoSuchRmp,
        Self::RmpBusy,
        Self::RmpShape,
        Self::PoolDomain,
        Self::NumbersUsedUp,
        Self::MkeyTranslations,
        Self::BadPkeyIndex,
        Self::NoForceLoopback,
        Self::NoSuchClock,
        Self::UmemPage,
        Self::NoSuchOrder,
        Self::NoEce,
        Self::NoSuchEce,
        Self::EceSettled,
        Self::NoSuchDct,
        Self::DctShape,
    ];

    pub(crate) fn status(self) -> Status {
        match self {
            Self::UnknownOpcode => Status::BadOp,
            Self::InputLength => Status::BadInputLen,
            Self::OutputLength => Status::BadOutputLen,
            Self::NoSuchPd | Self::NoSuchMkey | Self::NoSuchUmem | Self::NoSuchCq | Self::NoSuchUar => {
                Status::BadRes
            }
            Self::NoSuchQp | Self::NoSuchRmp | Self::NoSuchDct => Status::BadRes,
            Self::PdBusy | Self::CqBusy | Self::RmpBusy => Status::ResBusy,
            Self::QpState => Status::BadQpState,
            Self::NumbersUsedUp => Status::NoResources,
            Self::BadGidIndex | Self::BadPkeyIndex => Status::BadIndex,
            _ => Status::BadParam,
        }
    }

    /// "SN", then the place in the table above.
    pub(crate) fn syndrome(self) -> u32 {
        0x534e_0000 + 1 + Self::ALL.iter().position(|refusal| *refusal == self).unwrap_or(0) as u32
    }

    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::UnknownOpcode => "this NIC has no such command",
            Self::InputLength => "the input mailbox is shorter than the command",
            Self::OutputLength => "the output mailbox is shorter than the answer",
            Self::NoSuchPd => "no such protection domain",
            Self::PdBusy => "keys or queue pairs use the protection domain",
            Self::NoSuchMkey => "no such memory key",
            Self::MkeyAccessMode => "the key must translate through a umem (MTT, mkey_umem_valid)",
            Self::NoSuchUmem => "no such umem",
            Self::OutsideUmem => "the object does not lie inside its umem",
            Self::NoSuchCq => "no such completion queue",
            Self::CqBusy => "queue pairs complete there",
            Self::CqShape => "64-byte entries, up to 2^22 of them, not compressed, doorbell record in a umem",
            Self::NoSuchUar => "no such doorbell page",
            Self::NoSuchQp => "no such queue pair",
            Self::QpService => {
                "only reliable connections, unreliable datagrams and initiators of dynamically connected transport"
            }
            Self::NoSuchDct => "no such target of dynamically connected transport",
            Self::DctShape => "a target: mtu 1 to 5 and no larger than the port's, atomic_mode 0 to 3",
            Self::QpShape => "a send queue of 1 to 2^15 blocks with its doorbell record in a umem",
            Self::QpReceiveQueue => {
                "rq_type must be 0 (a receive queue of its own), 1 (a receive memory pool) or 3 (none)"
            }
            Self::Unaligned => "queues start at multiples of 64, doorbell records at multiples of 8",
            Self::QpState => "the queue pair is not in the state the transition starts from",
            Self::PathMigration => "pm_state must be 3 (migrated)",
            Self::PathMtu => "mtu must be 1 to 5, and no larger than the port's",
            Self::ReadDepth => "log_sra_max and log_rra_max are at most 4",
            Self::BadCapability => "no such capability type",
            Self::BadGidIndex => "the GID table has one entry, index 0",
            Self::BadPkeyIndex => "the partition table has no such entry",
            Self::NoForceLoopback => {
                "this device has no force loopback (fl_rc_qp_when_roce_enabled, _disabled)"
            }
            Self::NoSuchClock => "ts_format is no clock of this device (qp_ts_format)",
            Self::UmemPage => {
                "queues start at multiples of the page size that is deduced from the umem, 64 KiB"
            }
            Self::NoSuchOrder => "no such order of placement (dp_ordering_ooo_rw_rc, dp_ordering_ooo_all_rc)",
            Self::NoEce => "this device has no enhanced connection establishment (ece_support)",
            Self::NoSuchEce => "ece has bits that no version of its options knows",
            Self::EceSettled => "ece is not what was settled for the queue pair before",
            Self::MessageSize => "log_msg_max is at most 30",
            Self::EmptyMkey => "the key covers nothing",
            Self::NumbersUsedUp => "all numbers of such objects were handed out; none is used twice",
            Self::PoolDomain => "the pool belongs to another protection domain",
            Self::MkeyTranslations => {
                "both sizes of the translations are those of the pages, of 4 KiB at least, that the key covers"
            }
            Self::NoSuchRmp => "no such receive memory pool",
            Self::RmpBusy => "queue pairs receive from the pool",
            Self::RmpShape => {
                "a linked list of up to 2^15 WQEs of 32 bytes to 2 KiB, its doorbell record in a umem"
            }
        }
    }
}

/// A status code by name, for messages.
pub fn status_name(mailbox: &[u8]) -> &'static str {
    Status::name(mailbox.first().copied().unwrap_or(Status::InternalErr as u8))
}

/// What a 32-bit syndrome of this firmware means.
pub fn syndrome_meaning(mailbox: &[u8]) -> &'static str {
    let syndrome = if mailbox.len() >= 8 { output::SYNDROME.get(mailbox) } else { 0 };
    Refusal::ALL
        .iter()
        .find(|refusal| refusal.syndrome() == syndrome)
        .map_or("none", |refusal| refusal.meaning())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_are_distinct() {
        for (n, refusal) in Refusal::ALL.iter().enumerate() {
            assert_eq!(refusal.syndrome(), 0x534e_0001 + n as u32);
            assert_ne!(refusal.status(), Status::Ok);
        }
    }
}
