//! Where the ends are: both in this process, or one, and the other in another process of the job.

use crate::options::Options;
use anyhow::{Context, Result};
use shunt::host::connect::tcp::TcpNet;
use shunt::host::job::{Flags, Job};
use shunt::soft_nic::uplink::UnixUplink;
use shunt::soft_nic::{Fabric, FabricConfig, NicConfig, RailAt};
use shunt::{LINK_NS, Member, Members, Nics as _, SoftNics};
use std::sync::Arc;

/// The ends of this process, and their NICs.
pub struct Place {
    /// NICs of the ends that live here.
    pub nics: Arc<SoftNics>,
    /// Those ends.
    pub members: Vec<Member>,
    /// Keeps the job's connections.
    pub net: Option<TcpNet>,
}

fn nics(
    options: &Options,
    ends: std::ops::Range<u32>,
    attach: impl FnOnce(&mut Fabric) -> Result<()>,
) -> Result<Arc<SoftNics>> {
    let at = ends.flat_map(|pe| (0..options.rails).map(move |rail| RailAt { pe, rail }));
    let nics = at.map(|at| {
        let mut config = NicConfig::new(format!("mlx5_{}", at.rail), at.pe, at.rail);
        config.rail_gbps = Some(options.rail_gbps);
        (at, config)
    });
    Ok(Arc::new(SoftNics::with(FabricConfig { link_ns: LINK_NS, seed: 0 }, nics, attach)?))
}

impl Place {
    /// Joins the job that the environment names; makes one of this process alone where it names none.
    pub fn take(options: &Options) -> Result<Self> {
        let Some(job) = Job::from_env(&Flags::default())? else {
            let nics = nics(options, 0..2, |_| Ok(()))?;
            let members = Members::in_process(2, &nics.clock()).members;
            return Ok(Self { nics, members, net: None });
        };
        anyhow::ensure!(job.world == 2, "processes: expected 2, got {}; use shunt run -n 2", job.world);
        let joining = job.join()?;
        let net = TcpNet::join(joining.options)?;
        let (fabric, rank) = (joining.fabric, job.rank);
        let nics = nics(options, rank..rank + 1, |own| {
            let refused = || format!("fabric {fabric}");
            own.attach(Box::new(UnixUplink::open(&fabric, &[]).with_context(refused)?)).with_context(refused)
        })?;
        Ok(Self { nics, members: vec![Member::of_process(&net)], net: Some(net) })
    }
}
