//! Which call of libmlx5 a firmware command takes. The kernel lets each opcode through on one of them alone.

use shunt_layout::mlx5::prm::cmd::{self, Opcode};

/// Kinds of objects that Shunt makes through DEVX, in the order in which they may be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Qp,
    Cq,
    Mkey,
    Rmp,
    Pd,
}

impl Kind {
    /// Every kind, in that order.
    pub(super) const ALL: [Self; 5] = [Self::Qp, Self::Cq, Self::Mkey, Self::Rmp, Self::Pd];
}

/// The call for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// `mlx5dv_devx_general_cmd`.
    General,
    /// `mlx5dv_devx_obj_create`.
    Create(Kind),
    /// `mlx5dv_devx_obj_modify`.
    Modify(Kind),
    /// `mlx5dv_devx_obj_query`.
    Query(Kind),
    /// `mlx5dv_devx_obj_destroy`.
    Destroy(Kind),
}

/// The route of a command; `None` for one that DEVX lets nobody send, or that Shunt has no use for.
pub(super) fn route(opcode: u16) -> Option<Route> {
    use Opcode as Op;
    Some(match Op::from_raw(opcode)? {
        Op::QueryHcaCap
        | Op::QueryAdapter
        | Op::QueryVportState
        | Op::QueryNicVportContext
        | Op::QueryRoceAddress
        | Op::QueryHcaVportContext
        | Op::QueryHcaVportGid
        | Op::QueryHcaVportPkey
        | Op::Nop => Route::General,
        Op::CreateMkey => Route::Create(Kind::Mkey),
        Op::QueryMkey => Route::Query(Kind::Mkey),
        Op::DestroyMkey => Route::Destroy(Kind::Mkey),
        Op::CreateCq => Route::Create(Kind::Cq),
        Op::QueryCq => Route::Query(Kind::Cq),
        Op::DestroyCq => Route::Destroy(Kind::Cq),
        Op::CreateQp => Route::Create(Kind::Qp),
        Op::QueryQp => Route::Query(Kind::Qp),
        Op::DestroyQp => Route::Destroy(Kind::Qp),
        Op::Rst2InitQp
        | Op::Init2InitQp
        | Op::Init2RtrQp
        | Op::Rtr2RtsQp
        | Op::Rts2RtsQp
        | Op::Qp2Err
        | Op::Qp2Rst => Route::Modify(Kind::Qp),
        Op::AllocPd => Route::Create(Kind::Pd),
        Op::DeallocPd => Route::Destroy(Kind::Pd),
        Op::CreateRmp => Route::Create(Kind::Rmp),
        Op::ModifyRmp => Route::Modify(Kind::Rmp),
        Op::QueryRmp => Route::Query(Kind::Rmp),
        Op::DestroyRmp => Route::Destroy(Kind::Rmp),
        _ => return None,
    })
}

/// The number of the object that a command names.
pub(super) fn object_of(input: &[u8]) -> u32 {
    cmd::input::OBJECT.get(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_host_has_a_route() {
        let without: Vec<Opcode> =
            Opcode::ALL.iter().copied().filter(|opcode| route(*opcode as u16).is_none()).collect();
        let told = [Opcode::QueryHcaVportGid, Opcode::QueryHcaVportPkey, Opcode::QuerySpecialContexts];
        let unused = [Opcode::CreateDct, Opcode::DestroyDct, Opcode::QueryDct];
        let kept = [told, unused].concat();
        assert!(
            without.iter().all(|one| kept.contains(one)),
            "{without:?}: what verbs tell, and what the host needs not"
        );
    }

    #[test]
    fn the_kernels_lists() {
        for (opcode, want) in [
            (0x100, Some(Route::General)),
            (0x760, Some(Route::General)),
            (0x200, Some(Route::Create(Kind::Mkey))),
            (0x401, Some(Route::Destroy(Kind::Cq))),
            (0x500, Some(Route::Create(Kind::Qp))),
            (0x503, Some(Route::Modify(Kind::Qp))),
            (0x507, Some(Route::Modify(Kind::Qp))),
            (0x50b, Some(Route::Query(Kind::Qp))),
            (0x800, Some(Route::Create(Kind::Pd))),
            (0x802, None), // ALLOC_UAR has a call of its own
            (0x751, None), // MODIFY_VPORT_STATE is the kernel's
            (0xffff, None),
        ] {
            assert_eq!(route(opcode), want, "{opcode:#x}");
        }
    }
}
