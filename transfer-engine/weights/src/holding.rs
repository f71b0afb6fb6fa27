//! The weights that a trainer holds, in its own memory.

use crate::model::content;
use shunt_weight_sync::Param;
use std::ops::Range;

/// Bytes of the parameters that this trainer holds.
pub struct Holding {
    /// Of each parameter: which bytes, and where they lie.
    parts: Vec<Vec<(Range<u64>, usize)>>,
    bytes: Vec<u8>,
    turn: u64,
}

impl Holding {
    /// Of this trainer. It has no bytes before the first turn.
    pub fn new(params: &[Param], trainer: u32) -> Self {
        let mut at = 0;
        let parts = params.iter().map(|param| {
            let own = param.held.iter().filter(|it| it.trainer == trainer);
            let place = |bytes: Range<u64>| {
                let start = at;
                at += (bytes.end - bytes.start) as usize;
                (bytes, start)
            };
            own.map(|it| it.bytes.clone()).map(place).collect()
        });
        Self { parts: parts.collect(), bytes: Vec::new(), turn: 0 }
    }

    /// Trains: all bytes are others from now on.
    pub fn fill(&mut self, turn: u64) {
        self.bytes.clear();
        self.turn = turn;
        for (param, parts) in (0..).zip(&self.parts) {
            parts.iter().for_each(|(bytes, _)| content(turn, param, bytes.clone(), &mut self.bytes));
        }
    }

    /// All that is held: parameter, which bytes, and the bytes.
    pub fn all(&self) -> impl Iterator<Item = (usize, &Range<u64>, &[u8])> {
        let of =
            |(bytes, at): &(Range<u64>, usize)| &self.bytes[*at..*at + (bytes.end - bytes.start) as usize];
        let parts = self.parts.iter().enumerate();
        parts.flat_map(move |(param, parts)| parts.iter().map(move |it| (param, &it.0, of(it))))
    }

    /// Appends bytes of a parameter.
    ///
    /// # Errors
    /// They are not held.
    pub fn read(&self, param: u32, bytes: Range<u64>, into: &mut Vec<u8>) -> Result<(), String> {
        let parts = self.parts.get(param as usize).map_or(&[][..], Vec::as_slice);
        let (held, at) = parts
            .iter()
            .find(|(held, _)| held.start <= bytes.start && held.end >= bytes.end)
            .ok_or_else(|| format!("parameter {param}: expected bytes that are held, got {bytes:?}"))?;
        let start = at + (bytes.start - held.start) as usize;
        into.extend_from_slice(&self.bytes[start..start + (bytes.end - bytes.start) as usize]);
        Ok(())
    }
}
