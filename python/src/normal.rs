//! A buffer of normal mode of one rank.

use crate::error::raised;
use crate::held::{Held, bytes, copied, held};
use crate::job::PyJob;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shunt_deep_ep_bridge::normal::{Config, NormalBuffer, NormalHandle, NormalReceived, Tokens};
use shunt_deep_ep_bridge::{MoeError, Patience};
use shunt_deep_ep_job::{Job, Lane};
use shunt_layout::moe::{HIDDEN_STEP, TOPK_MAX};
use shunt_layout::moe_normal::NormalShape;

/// SMs, slots inside a node, slots of one put, slots between nodes.
type Rings = (u32, u32, u32, u32);
/// Ranks, ranks of a node, experts of a rank, tokens of a rank at most, hidden size.
type Sizes = (u32, u32, u32, u32, u32);

fn shape(py: Python<'_>, sizes: Sizes, rings: Rings) -> PyResult<NormalShape> {
    let (ranks, locals, local_experts, tokens, hidden) = sizes;
    let (sms, nvl_slots, rdma_chunk, rdma_slots) = rings;
    if locals == 0 || !ranks.is_multiple_of(locals) {
        let right = format!("expected a divisor of {ranks}");
        return Err(PyValueError::new_err(format!("ranks_per_node: {right}, got {locals}")));
    }
    let config = Config { sms, nvl_slots, rdma_chunk, rdma_slots };
    // Room for as many experts of a token as there may be: it is next to nothing, and a call need not know of it.
    let shape = config.shape(ranks / locals, locals, (local_experts, TOPK_MAX), tokens, hidden);
    shape.check().map_err(|bad| raised(py, &MoeError::NormalShape(bad)))
}

/// Bytes of the heap that such a buffer takes.
#[pyfunction]
pub fn normal_size_hint(py: Python<'_>, sizes: Sizes, rings: Rings) -> PyResult<u64> {
    shape(py, sizes, rings).map(|shape| shape.bytes())
}

fn new(
    py: Python<'_>,
    job: &PyJob,
    rank: u32,
    (base, room): (u64, u64),
    shape: NormalShape,
    timeout_ns: u64,
) -> PyResult<NormalBuffer<Lane>> {
    if !job.job.own().contains(&rank) {
        return Err(PyValueError::new_err(format!("rank {rank}: expected one of {:?}", job.job.own())));
    }
    held(py, shape.bytes(), room)?;
    let patience = Patience { timeout_ns, slice_ns: job.job.slice_ns(), ..Patience::default() };
    NormalBuffer::new(job.job.lane(rank), Job::BASE + base, shape, patience)
        .map_err(|error| raised(py, &error))
}

/// Tokens to each rank, to each node, to each expert; by token and rank whether the one goes to the other.
type Laid<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Which token goes where. It needs no sizes but those of the job: a buffer that nothing is sent by.
#[pyfunction]
pub fn normal_layout<'py>(
    py: Python<'py>,
    job: &PyJob,
    rank: u32,
    locals: u32,
    local_experts: u32,
    topk: u32,
    topk_idx: &Bound<'_, PyAny>,
) -> PyResult<Laid<'py>> {
    let routes = copied::<i64>(topk_idx)?;
    let tokens = routes.len().checked_div(topk as usize).unwrap_or(0);
    let most = u32::try_from(tokens.max(1)).unwrap_or(u32::MAX);
    let shape = shape(py, (job.job.ranks(), locals, local_experts, most, HIDDEN_STEP), (2, 1, 1, 2))?;
    let mut buffer = new(py, job, rank, (0, u64::MAX), shape, u64::MAX)?;
    let layout = py.detach(|| buffer.dispatch_layout(topk, &routes)).map_err(|error| raised(py, &error))?;
    let ranks = job.job.ranks() as usize;
    let goes = |number: usize| u8::from(layout.is_token_in_rank(number / ranks, number % ranks));
    let goes: Vec<u8> = (0..tokens * ranks).map(goes).collect();
    Ok((
        bytes(py, &layout.rank_counts, u32::to_le_bytes),
        bytes(py, &layout.node_counts, u32::to_le_bytes),
        bytes(py, &layout.expert_counts, u32::to_le_bytes),
        PyBytes::new(py, &goes),
    ))
}

/// What a dispatch leaves for what follows it.
#[pyclass(frozen, name = "NormalHandle", module = "shunt_ep._native")]
pub struct PyNormalHandle(NormalHandle);

#[pymethods]
impl PyNormalHandle {
    /// By rank: rows of all ranks up to it.
    fn rank_prefix_sum(&self, ranks: usize) -> Vec<usize> {
        (0..ranks).map(|rank| self.0.rows_from(rank).end).collect()
    }

    fn rows(&self) -> usize {
        self.0.rows()
    }

    /// Where each token stands in what was sent, what each rank and each node sent, and whom that goes on to.
    fn ways<'py>(&self, py: Python<'py>) -> [Bound<'py, PyBytes>; 4] {
        self.0.ways().map(|part| bytes(py, part, u32::to_le_bytes))
    }
}

/// Channels and scales as bytes, experts and weights, rows of each local expert, the handle.
type Came<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Vec<u32>,
    PyNormalHandle,
);

fn came(py: Python<'_>, received: NormalReceived) -> Came<'_> {
    let NormalReceived { x, scales, topk_index, topk_weights, counts, handle } = received;
    (
        bytes(py, &x, u64::to_le_bytes),
        bytes(py, &scales, f32::to_le_bytes),
        bytes(py, &topk_index, i64::to_le_bytes),
        bytes(py, &topk_weights, f32::to_le_bytes),
        counts,
        PyNormalHandle(handle),
    )
}

/// Tokens of either kind, copied.
enum Given {
    Bf16(Vec<u16>),
    Fp8(Vec<u8>, Vec<f32>),
}

impl Given {
    fn of(x: &Bound<'_, PyAny>, scales: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(match scales {
            Some(scales) => Self::Fp8(copied(x)?, copied(scales)?),
            None => Self::Bf16(copied(x)?),
        })
    }

    fn tokens(&self) -> Tokens<'_> {
        match self {
            Self::Bf16(x) => Tokens::Bf16(x),
            Self::Fp8(x, scales) => Tokens::Fp8(x, scales),
        }
    }
}

/// The buffer.
#[pyclass(frozen, name = "Normal", module = "shunt_ep._native")]
pub struct PyNormal(Held<NormalBuffer<Lane>>);

#[pymethods]
impl PyNormal {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "as Python calls it")]
    fn new(
        py: Python<'_>,
        job: &PyJob,
        rank: u32,
        base: u64,
        room: u64,
        sizes: Sizes,
        rings: Rings,
        timeout_ns: u64,
    ) -> PyResult<Self> {
        Ok(Self(Held::of(new(py, job, rank, (base, room), shape(py, sizes, rings)?, timeout_ns)?)))
    }

    /// `experts` is `topk` with indices and weights of all tokens, if there are any; `room`: for so many rows, or 0.
    #[pyo3(signature = (x, scales, is_token_in_rank, expert_counts, experts, room))]
    #[expect(clippy::too_many_arguments, reason = "as Python calls it")]
    fn dispatch<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'_, PyAny>,
        scales: Option<&Bound<'_, PyAny>>,
        is_token_in_rank: &Bound<'_, PyAny>,
        expert_counts: &Bound<'_, PyAny>,
        experts: Option<(u32, Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        room: u64,
    ) -> PyResult<Came<'py>> {
        let room = if room == 0 { u64::MAX } else { room };
        let given = Given::of(x, scales)?;
        let goes: Vec<bool> = copied::<u8>(is_token_in_rank)?.into_iter().map(|goes| goes != 0).collect();
        let counts = copied::<u32>(expert_counts)?;
        let (topk, index, weights) = match experts {
            Some((topk, index, weights)) => (topk, copied::<i64>(&index)?, copied::<f32>(&weights)?),
            None => (0, Vec::new(), Vec::new()),
        };
        let received = self.0.with(py, |buffer| {
            let layout = buffer.layout_of(&goes, &counts, topk)?;
            buffer.dispatch_within(room, given.tokens(), &layout, &index, &weights)
        })?;
        Ok(came(py, received))
    }

    /// The same by the handle of an earlier one.
    #[pyo3(signature = (x, scales, handle))]
    fn dispatch_cached<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'_, PyAny>,
        scales: Option<&Bound<'_, PyAny>>,
        handle: &PyNormalHandle,
    ) -> PyResult<Came<'py>> {
        let given = Given::of(x, scales)?;
        Ok(came(py, self.0.with(py, |buffer| buffer.dispatch_cached(given.tokens(), &handle.0))?))
    }

    /// Combined tokens and, where rows have weights, theirs.
    #[pyo3(signature = (x, weights, biases, handle))]
    fn combine<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'_, PyAny>,
        weights: Option<&Bound<'_, PyAny>>,
        biases: [Option<Bound<'_, PyAny>>; 2],
        handle: &PyNormalHandle,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let x = copied::<u16>(x)?;
        let weights = weights.map(|weights| copied::<f32>(weights)).transpose()?;
        let [first, second] = biases.map(|bias| bias.map(|bias| copied::<u16>(&bias)).transpose());
        let (first, second) = (first?, second?);
        let combined = self.0.with(py, |buffer| {
            let biases = [first.as_deref(), second.as_deref()];
            buffer.combine_biased(&x, weights.as_deref(), biases, &handle.0)
        })?;
        Ok((bytes(py, &combined.x, u16::to_le_bytes), bytes(py, &combined.topk_weights, f32::to_le_bytes)))
    }

    fn clean(&self, py: Python<'_>) -> PyResult<()> {
        self.0.with(py, NormalBuffer::clean)
    }

    fn destroy(&self, py: Python<'_>) {
        self.0.destroy(py);
    }
}
