//! Where the ends are: both in this process, or one, and the other in another process of the job.

use crate::options::Options;
use anyhow::{Context, Result, bail, ensure};
use shunt::{Member, OpenNics};
use shunt_transfer::{Place, Source, Wish};

/// Gb/s of a rail in software, where nothing is said.
const SOFT_GBPS: f64 = 1.0;

/// What carries the packets, if it can do what the options ask of it.
///
/// # Errors
/// It is not there, or it cannot.
pub fn source(options: &Options) -> Result<Source> {
    let nic = options.nic(&|name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
    let soft_gbps = options.rail_gbps.unwrap_or(SOFT_GBPS);
    let source = Source::find(Wish { nic, rails: options.rails, soft_gbps })?;
    if let Some(gbps) = options.rail_gbps.filter(|_| source.are_devices()) {
        bail!("--rail-gbps: expected no rate with RDMA devices, whose ports have their own, got {gbps}");
    }
    match options.inject.first().filter(|_| !source.fail_on_request()) {
        Some(fault) => bail!(
            "--inject {fault}: expected NICs in software, which fail on request, got hardware; take its cable out, or \
             its port down, during the run"
        ),
        None => Ok(source),
    }
}

/// Joins the job that the environment names; makes one of this process alone where it names none.
pub fn take(source: &Source) -> Result<Place> {
    let place = match Place::from_env(source)? {
        None => Place::alone(source, 2)?,
        Some(place) => place,
    };
    ensure!(place.ends() == 2, "processes: expected 2, got {}; use shunt run -n 2", place.ends());
    for line in &place.lines {
        shunt::host::complain!("transfer_bw: {line}");
    }
    Ok(place)
}

/// Runs every end that lives here on a thread of its own: what one of them answers, which is what both saw.
pub fn both<T: Send + 'static>(
    place: &Place,
    end: impl Fn(Member, &OpenNics) -> Result<Vec<T>> + Clone + Send + 'static,
) -> Result<Vec<T>> {
    let ends = place.members().into_iter().map(|member| {
        let (nics, end, pe) = (place.nics.clone(), end.clone(), member.pe);
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
