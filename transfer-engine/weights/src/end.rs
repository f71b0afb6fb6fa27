//! One end: its node, its memory, and what it knows of the others.

use crate::holding::Holding;
use crate::model::{content, server_bytes, starts};
use crate::options::{Mode, Options};
use crate::seen::Part;
use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shunt_transfer::{Node, Region};
use shunt_transfer_engine::region::{MrDesc, Rights};
use shunt_transfer_program::place::heap;
use shunt_weight_sync::Param;
use shunt_weight_sync::pipeline::Transform;
use std::collections::BTreeSet;

/// An end that is connected.
pub struct End<'a> {
    /// The command line.
    pub options: &'a Options,
    /// The model.
    pub params: &'a [Param],
    /// Its node.
    pub node: Node,
    /// What it holds, if it is a trainer.
    pub holding: Holding,
    /// Memory that others write to: of a server, and of trainer 0 if all goes through it.
    pub memory: Option<Region>,
    /// Memory that its NICs read.
    pub staging: Option<Region>,
    /// The others' memory, by number of the end.
    pub targets: Vec<Option<MrDesc>>,
    /// Phases so far.
    pub phases: u32,
    /// Immediates of phases that went well: all were awaited, so none may be left.
    pub counted: Vec<(u32, u32)>,
    /// What it has seen.
    pub part: Part,
}

fn register(node: &Node, bytes: u64, rights: Rights) -> Result<Option<Region>> {
    if bytes == 0 {
        return Ok(None);
    }
    Ok(Some(node.register(heap(bytes)?, rights)?))
}

impl<'a> End<'a> {
    /// Takes memory, and tells the others of it.
    ///
    /// # Errors
    /// There is none, or an end does not answer.
    pub fn new(options: &'a Options, params: &'a [Param], node: Node) -> Result<Self> {
        let (end, trainers) = (node.end(), options.trainers);
        let bytes = match end.checked_sub(trainers) {
            Some(server) => server_bytes(params, server, options.rounding()),
            None if end == 0 && options.mode != Mode::P2p => starts(params).pop().unwrap_or(0),
            None => 0,
        };
        let memory = register(&node, bytes, Rights::Write)?;
        let staging = if end < trainers { options.watermark } else { 0 };
        let staging = register(&node, staging, Rights::Local)?;
        let own = memory.as_ref().map(|memory| memory.describe().to_bytes());
        let all = node.exchange(&own.unwrap_or_default())?;
        let target = |bytes: &Vec<u8>| match bytes.is_empty() {
            true => Ok(None),
            false => MrDesc::from_bytes(bytes).map(Some),
        };
        let targets = all.iter().map(target).collect::<Result<_, _>>()?;
        let holding = Holding::new(params, end);
        Ok(Self {
            options,
            params,
            node,
            holding,
            memory,
            staging,
            targets,
            phases: 0,
            counted: Vec::new(),
            part: Part::default(),
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.node.end()
    }

    /// Gives something to all ends, and returns everyone's.
    ///
    /// # Errors
    /// An end does not answer.
    pub fn exchange<T: Serialize + DeserializeOwned>(&self, mine: &T) -> Result<Vec<T>> {
        let all = self.node.exchange(&serde_json::to_vec(mine)?)?;
        all.iter().map(|bytes| serde_json::from_slice(bytes).context("what another end said")).collect()
    }

    /// How many rails of this end lead anywhere.
    ///
    /// # Errors
    /// The engine has ended.
    pub fn rails(&self) -> Result<u32> {
        let mut rails = BTreeSet::new();
        for peer in (0..self.node.ends()).filter(|peer| *peer != self.number()) {
            rails.extend(self.node.rails_to(peer)?.into_iter().map(|(local, _)| local));
        }
        Ok(rails.len() as u32)
    }

    /// Has other weights from now on. Trainer 0 puts its own where it gathers the others'.
    ///
    /// # Errors
    /// Its memory takes none.
    pub fn train(&mut self, turn: u64) -> Result<()> {
        self.holding.fill(turn);
        if let Some(memory) = self.memory.as_ref().filter(|_| self.number() == 0) {
            let starts = starts(self.params);
            let base = memory.memory().span().address;
            for (param, bytes, content) in self.holding.all() {
                memory.memory().memory().write(base + starts[param] + bytes.start, content)?;
            }
        }
        Ok(())
    }

    /// How many bytes of this server's memory are not what the trainers held at a turn.
    ///
    /// # Errors
    /// Its memory cannot be read.
    pub fn wrong(&self, turn: u64) -> Result<u64> {
        let (rounding, trainers) = (self.options.rounding(), self.options.trainers);
        let (Some(memory), Some(server)) = (&self.memory, self.number().checked_sub(trainers)) else {
            return Ok(0);
        };
        let base = memory.memory().span().address;
        let (mut wrong, mut held, mut wanted, mut met) = (0, Vec::new(), Vec::new(), Vec::new());
        for (number, param) in (0..).zip(self.params) {
            for it in param.wanted.iter().filter(|it| it.server == server) {
                let mut start = it.bytes.start;
                while start < it.bytes.end {
                    let block = start..it.bytes.end.min(start + BLOCK);
                    held.clear();
                    wanted.clear();
                    content(turn, number, block.clone(), &mut held);
                    let mut put = |part: &[u8]| -> Result<(), String> {
                        wanted.extend_from_slice(part);
                        Ok(())
                    };
                    rounding.transform(&held, &mut put).map_err(anyhow::Error::msg)?;
                    met.resize(wanted.len(), 0);
                    let at = rounding.bytes(it.at + (start - it.bytes.start));
                    memory.memory().memory().read(base + at, &mut met)?;
                    if met != wanted {
                        wrong += met.iter().zip(&wanted).filter(|(met, wanted)| met != wanted).count() as u64;
                    }
                    start = block.end;
                }
            }
        }
        Ok(wrong)
    }
}

/// Bytes that are compared at once.
const BLOCK: u64 = 64 << 10;
