//! The ends of this process, each on a thread of its own.

use anyhow::{Context, Result};
use shunt::Member;
use shunt_transfer::Carriers;
use shunt_transfer::Place;
use shunt_transfer_program::place::joined;

/// Runs every end that lives here on a thread of its own: what one of them answers, which is what both saw.
pub fn both<T: Send + 'static>(
    place: &Place,
    end: impl Fn(Member, &Carriers) -> Result<Vec<T>> + Clone + Send + 'static,
) -> Result<Vec<T>> {
    let ends = place.members().into_iter().map(|member| {
        let (nics, end, pe) = (place.nics.clone(), end.clone(), member.pe);
        (pe, std::thread::spawn(move || end(member, &nics)))
    });
    // All are begun before the first is waited for.
    let all = joined(ends.collect::<Vec<_>>())?;
    all.into_iter().next().context("no end lives here")
}
