//! Where the ends are: both in this process, or one, and the other in another process of the job.

use crate::options::Options;
use anyhow::{Context, Result, ensure};
use shunt::choice::{software, through_libibverbs};
use shunt::host::connect::Bootstrap;
use shunt::host::connect::tcp::TcpNet;
use shunt::host::job::{Flags, Job};
use shunt::machine::{self, Found, MachinePorts, Rails};
use shunt::soft_nic::uplink::UnixUplink;
use shunt::soft_nic::{Fabric, FabricConfig, NicConfig, RailAt};
use shunt::{LINK_NS, Member, Members, OpenNics, SoftNics};
use shunt_settings::NicKind;
use std::sync::Arc;

/// Gb/s of a rail in software, where nothing is said.
const SOFT_GBPS: f64 = 1.0;

/// What carries the packets, found before anybody waits for it.
pub struct Source {
    asked: NicKind,
    found: Found,
}

impl Source {
    /// Looks for what is asked for. Nothing is left open.
    ///
    /// # Errors
    /// It is not there, or cannot do what the options ask of it.
    pub fn find(options: &Options) -> Result<Self> {
        let lookup = |name: &str| std::env::var(name).ok();
        let asked = options.nic(&lookup).map_err(anyhow::Error::msg)?;
        let found = Found::find(asked, Rails::Exactly(options.rails), &lookup)?;
        if let Found::Mlx5(ports) = &found {
            Self::fits(options, ports.is_interposed())?;
        }
        Ok(Self { asked, found })
    }

    /// What only software has.
    fn fits(options: &Options, interposed: bool) -> Result<()> {
        if let Some(gbps) = options.rail_gbps {
            anyhow::bail!(
                "--rail-gbps: expected no rate with --nic mlx5, whose ports have their own, got {gbps}"
            );
        }
        let first = options.inject.first().filter(|_| !interposed);
        match first {
            Some(fault) => anyhow::bail!(
                "--inject {fault}: expected NICs in software, which fail on request, got hardware; take its cable \
                 out, or its port down, during the run"
            ),
            None => Ok(()),
        }
    }

    /// What a rail carries. Soft NICs behind libibverbs move what the cores give them, whatever rate their ports name.
    fn rail_gbps(&self, options: &Options, nics: &OpenNics) -> Option<f64> {
        match &self.found {
            Found::Soft(_) => Some(soft_gbps(options)),
            Found::Mlx5(_) if nics.are_soft() => None,
            Found::Mlx5(ports) => Some(ports.ports().slowest_gbps()).filter(|gbps| *gbps > 0.0),
        }
    }

    /// What both ends must have alike.
    fn name(&self) -> &'static str {
        if matches!(self.found, Found::Soft(_)) { "NICs in software" } else { "RDMA devices" }
    }

    /// Says what the NICs are that so many ends of this machine share, if that was not asked for by name.
    fn tell(&self, ends: usize) {
        match &self.found {
            Found::Soft(_) if self.asked == NicKind::Soft => {}
            Found::Soft(why) => shunt::host::complain!("transfer_bw: {}", software(why)),
            Found::Mlx5(ports) => {
                ports.ports().notes().iter().for_each(|note| shunt::host::complain!("transfer_bw: {note}"));
                shunt::host::complain!("transfer_bw: {}", through_libibverbs(&ports.devices(ends)));
            }
        }
    }
}

/// The ends of this process, and their NICs.
pub struct Place {
    /// NICs of the ends that live here.
    pub nics: Arc<OpenNics>,
    /// What a rail of them carries in Gb/s, if it is known.
    pub rail_gbps: Option<f64>,
    /// Keeps the job's connections.
    pub net: Option<TcpNet>,
}

fn soft_gbps(options: &Options) -> f64 {
    options.rail_gbps.unwrap_or(SOFT_GBPS)
}

fn soft(
    options: &Options,
    ends: std::ops::Range<u32>,
    attach: impl FnOnce(&mut Fabric) -> Result<()>,
) -> Result<OpenNics> {
    let at = ends.flat_map(|pe| (0..options.rails).map(move |rail| RailAt { pe, rail }));
    let nics = at.map(|at| {
        let mut config = NicConfig::new(format!("mlx5_{}", at.rail), at.pe, at.rail);
        config.rail_gbps = Some(soft_gbps(options));
        (at, config)
    });
    let config = FabricConfig { link_ns: LINK_NS, seed: 0 };
    Ok(OpenNics::Soft(Arc::new(SoftNics::with(config, nics, attach)?)))
}

/// The ends that take their ports from the same ones as this end does.
fn mates(net: &TcpNet, ports: &MachinePorts) -> Result<Vec<u32>> {
    let own = [ports.ports().identity().into_bytes(), machine::id()].concat();
    let all = net.bootstrap().all_gather(&own)?;
    let same = (0..).zip(&all).filter(|(_, other)| **other == own);
    Ok(same.map(|(end, _)| end).collect())
}

impl Place {
    /// Joins the job that the environment names; makes one of this process alone where it names none.
    pub fn take(options: &Options, source: &Source) -> Result<Self> {
        let Some(job) = Job::from_env(&Flags::default())? else {
            source.tell(2);
            let nics = Arc::new(match &source.found {
                Found::Soft(_) => soft(options, 0..2, |_| Ok(()))?,
                Found::Mlx5(ports) => OpenNics::Mlx5(ports.take(&[0, 1], |_| true)?),
            });
            return Ok(Self { rail_gbps: source.rail_gbps(options, &nics), nics, net: None });
        };
        ensure!(job.world == 2, "processes: expected 2, got {}; use shunt run -n 2", job.world);
        let joining = job.join()?;
        let net = TcpNet::join(joining.options)?;
        let (fabric, rank) = (joining.fabric, job.rank);
        for (end, name) in (0..).zip(net.bootstrap().all_gather(source.name().as_bytes())?) {
            let name = String::from_utf8_lossy(&name);
            ensure!(
                name == source.name(),
                "NICs: expected {} as here, got {name} at end {end}",
                source.name()
            );
        }
        let nics = match &source.found {
            Found::Soft(_) => {
                if rank == 0 {
                    source.tell(2);
                }
                soft(options, rank..rank + 1, |own| {
                    let refused = || format!("fabric {fabric}");
                    own.attach(Box::new(UnixUplink::open(&fabric, &[]).with_context(refused)?))
                        .with_context(refused)
                })?
            }
            Found::Mlx5(ports) => {
                let mates = mates(&net, ports)?;
                if mates.first() == Some(&rank) {
                    source.tell(mates.len());
                }
                OpenNics::Mlx5(ports.take(&mates, |pe| pe == rank)?)
            }
        };
        Ok(Self { rail_gbps: source.rail_gbps(options, &nics), nics: Arc::new(nics), net: Some(net) })
    }

    /// The ends that live here, which know nothing of each other yet.
    fn members(&self) -> Vec<Member> {
        match &self.net {
            Some(net) => vec![Member::of_process(net)],
            None => Members::in_process(2, &self.nics.clock()).members,
        }
    }

    /// Runs every end that lives here on a thread of its own: what one of them answers, which is what both saw.
    pub fn both<T: Send + 'static>(
        &self,
        end: impl Fn(Member, &OpenNics) -> Result<Vec<T>> + Clone + Send + 'static,
    ) -> Result<Vec<T>> {
        let ends = self.members().into_iter().map(|member| {
            let (nics, end, pe) = (self.nics.clone(), end.clone(), member.pe);
            (pe, std::thread::spawn(move || end(member, &nics)))
        });
        let ends: Vec<_> = ends.collect();
        let (mut all, mut failed) = (Vec::new(), Vec::new());
        for (pe, end) in ends {
            match end.join() {
                Ok(Ok(seen)) => all.push(seen),
                Ok(Err(error)) => failed.push(format!("end {pe}: {error:#}")),
                Err(_) => failed.push(format!("end {pe} panicked")),
            }
        }
        ensure!(failed.is_empty(), "{}", failed.join("; "));
        all.into_iter().next().context("no end lives here")
    }

    /// Whether this process prints and writes.
    pub fn is_first(&self) -> bool {
        self.net.as_ref().is_none_or(|net| net.rank() == 0)
    }
}
