//! The transfer engine: an end of a job, memory that is lent to it, transfers. What Python sees is `shunt_transfer`.

use crate::ended::{PyExpectation, PyMet, PyScattered, PyTransfer, refused, waited};
use crate::job::{self, PyRoot};
use crate::watched::{PyWatcher, Word};
use pyo3::exceptions::{PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::Fault;
use shunt_transfer::transport::Names;
use shunt_transfer::{
    BootstrapError, CallError, Change, NicKind, NoNode, Node, Place, Region, Source, Way, Wish,
};
use shunt_transfer_engine::engine::Share;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::{MrDesc, Rights};
use shunt_transfer_engine::shard::Pages;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

fn no_node(error: &NoNode) -> PyErr {
    match error {
        NoNode::Refused(_) | NoNode::Rails { .. } | NoNode::Machine(_) | NoNode::Job(_) => {
            PyValueError::new_err(error.to_string())
        }
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

fn rights(name: &str) -> PyResult<Rights> {
    Ok(match name {
        "local" => Rights::Local,
        "write" => Rights::Write,
        "read" => Rights::Read,
        "read_write" => Rights::ReadWrite,
        _ => {
            let text = format!("rights: expected local, write, read or read_write, got {name:?}");
            return Err(PyValueError::new_err(text));
        }
    })
}

/// As the package has them.
const NAMES: Names = Names {
    transport: "transport",
    provider: "provider",
    addresses: "addresses",
    nic: "nic",
    gbps: "soft_gbps",
};
/// Gb/s of a rail in software, where nothing is said.
const SOFT_GBPS: f64 = 1.0;

/// What carries transfers, as the package gives it: transport, provider, addresses, kind of NICs, rate of NICs in
/// software.
type Typed = (String, Option<String>, Vec<String>, Option<String>, Option<f64>);

/// Peer, target and offset in it, offset in the source, bytes, immediate.
type PyShare = (u32, Py<PyTarget>, u64, u64, u64, Option<u32>);

/// What is asked for.
struct Asked {
    way: Way,
    wish: Wish,
}

impl Asked {
    fn of(typed: Typed, rails: u32) -> PyResult<Self> {
        let (transport, provider, addresses, nic, gbps) = typed;
        let refused = |error: String| PyValueError::new_err(error);
        let transport = transport.parse().map_err(|error| refused(format!("transport: {error}")))?;
        let (has_nic, has_gbps) = (nic.is_some(), gbps.is_some());
        let way = Way { transport, provider, addresses, has_nic, has_gbps, ..Way::default() };
        let said = nic.or_else(|| std::env::var(NicKind::VARIABLE).ok());
        let kind = NicKind::from_lookup(&|_| said.clone());
        let nic = kind.map_err(|error| refused(error.to_string()))?.unwrap_or_default();
        Ok(Self { way, wish: Wish { nic, rails, soft_gbps: gbps.unwrap_or(SOFT_GBPS) } })
    }

    fn source(&self) -> Result<Source, NoNode> {
        Source::by(&self.way, &NAMES, self.wish)
    }
}

/// An end of a job; empty once it is closed.
#[pyclass(frozen, name = "TransferNode", module = "shunt_ep._native")]
pub struct PyNode(RwLock<Option<Arc<Node>>>);

impl PyNode {
    fn of(node: Node) -> Self {
        Self(RwLock::new(Some(Arc::new(node))))
    }

    fn node(&self) -> PyResult<Arc<Node>> {
        let node = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        node.ok_or_else(|| PyRuntimeError::new_err("the engine is closed"))
    }

    /// Calls with the interpreter let go: the engine's thread answers.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Node) -> Result<T, CallError> + Send,
    ) -> PyResult<T> {
        let node = self.node()?;
        py.detach(move || call(&node)).map_err(|error| refused(&error))
    }
}

fn joined(
    py: Python<'_>,
    asked: &Asked,
    place: impl FnOnce(&Source) -> Result<Place, NoNode> + Send,
) -> PyResult<Vec<PyNode>> {
    let nodes = py.detach(|| {
        let source = asked.source()?;
        let place = place(&source)?;
        place.lines.iter().for_each(|line| shunt_transfer::complain(line));
        Node::start(place, asked.wish.rails)
    });
    Ok(nodes.map_err(|error| no_node(&error))?.into_iter().map(PyNode::of).collect())
}

fn one(nodes: Vec<PyNode>) -> PyResult<PyNode> {
    nodes.into_iter().next().ok_or_else(|| PyRuntimeError::new_err("no end lives in this process"))
}

#[pymethods]
impl PyNode {
    /// All ends in this process: on software NICs, unless it is libfabric.
    #[staticmethod]
    fn alone(py: Python<'_>, ends: u32, rails: u32, typed: Typed) -> PyResult<Vec<Self>> {
        job::within("ends", ends, 2, 64)?;
        let mut asked = Asked::of(typed, rails)?;
        asked.wish.nic = NicKind::Soft;
        joined(py, &asked, |source| Place::alone(source, ends))
    }

    /// The end that this process is, as its launcher's variables say.
    #[staticmethod]
    fn from_env(py: Python<'_>, rails: u32, typed: Typed) -> PyResult<Self> {
        let alone = "SHUNT_RANK: expected a number, as `shunt run -n 2 -- python3 ..` and other launchers set it, got \
                     nothing";
        let place =
            |source: &Source| Place::from_env(source)?.ok_or_else(|| NoNode::Refused(alone.to_owned()));
        one(joined(py, &Asked::of(typed, rails)?, place)?)
    }

    /// The end that this process is, of a job whose rank 0 has made `unique_id`, and gives what it made it with.
    #[staticmethod]
    #[pyo3(signature = (rank, ranks, unique_id, root, rails, typed))]
    fn join(
        py: Python<'_>,
        rank: u32,
        ranks: u32,
        unique_id: &[u8],
        root: Option<&PyRoot>,
        rails: u32,
        typed: Typed,
    ) -> PyResult<Self> {
        let joining = job::joining(rank, ranks, unique_id, root)?;
        one(joined(py, &Asked::of(typed, rails)?, |source| Place::join(source, joining))?)
    }

    /// A node without peers, which listens at an address for others; `end`: its number among those of this machine on
    /// software NICs.
    #[staticmethod]
    fn listen(py: Python<'_>, at: &str, end: u32, rails: u32, typed: Typed) -> PyResult<Self> {
        let asked = Asked::of(typed, rails)?;
        let fabric = std::env::var("SHUNT_FABRIC").unwrap_or_else(|_| shunt_transfer::FABRIC.to_owned());
        let node = py.detach(|| {
            let place = Arc::new(Place::beside(&asked.source()?, end, &fabric)?);
            place.lines.iter().for_each(|line| shunt_transfer::complain(line));
            Node::open(&place, end, rails, at)
        });
        node.map(Self::of).map_err(|error| no_node(&error))
    }

    /// Where it listens.
    fn listens_at(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.call(py, Node::listens_at)?.to_string())
    }

    /// Connects to the node that listens at `to`: its number.
    fn connect(&self, py: Python<'_>, to: &str, patience_ns: u64) -> PyResult<u32> {
        self.call(py, |node| node.connect(to, Duration::from_nanos(patience_ns)))
    }

    /// Peers that are there.
    fn peers(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.call(py, Node::peers)
    }

    /// The oldest change among them, as a peer's number and whether it is there now; `None`: not in time.
    fn next_change(&self, py: Python<'_>, patience_ns: u64) -> PyResult<Option<(u32, bool)>> {
        let node = self.node()?;
        let change = waited(py, patience_ns, |patience| node.next_change(patience))?;
        Ok(change.map(|change| match change {
            Change::Joined(peer) => (peer, true),
            Change::Left(peer) => (peer, false),
        }))
    }

    /// Cuts a peer off: whether that was proven in time.
    fn revoke(&self, py: Python<'_>, peer: u32, patience_ns: u64) -> PyResult<bool> {
        self.call(py, |node| node.revoke(peer, Duration::from_nanos(patience_ns)))
    }

    /// Begins to send a message.
    fn send(&self, py: Python<'_>, peer: u32, message: &[u8]) -> PyResult<PyTransfer> {
        self.call(py, |node| node.send(peer, message)).map(PyTransfer)
    }

    /// The oldest message, and whose it is; `None`: not in time.
    fn receive<'py>(
        &self,
        py: Python<'py>,
        patience_ns: u64,
    ) -> PyResult<Option<(u32, Bound<'py, PyBytes>)>> {
        let node = self.node()?;
        let came = waited(py, patience_ns, |patience| node.receive(patience))?;
        Ok(came.map(|(peer, message)| (peer, PyBytes::new(py, &message))))
    }

    /// Has every NIC take a region's keys back.
    fn deregister(&self, py: Python<'_>, region: &PyRegion) -> PyResult<()> {
        let region = region.0.clone();
        self.call(py, move |node| node.deregister(&region))
    }

    /// Its number, and ends of the job.
    fn place(&self) -> PyResult<(u32, u32)> {
        let node = self.node()?;
        Ok((node.end(), node.ends()))
    }

    /// What carries the packets, for people.
    fn nics(&self) -> PyResult<String> {
        Ok(self.node()?.place().nics.describe())
    }

    /// Gives bytes to all ends and returns everyone's; `TimeoutError`: not in time.
    fn exchange<'py>(
        &self,
        py: Python<'py>,
        mine: &[u8],
        patience_ns: u64,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let node = self.node()?;
        let all = py.detach(|| node.exchange_within(mine, Duration::from_nanos(patience_ns)));
        let all = all.map_err(|error| match &error {
            CallError::Exchange(BootstrapError::Missing { .. }) => PyTimeoutError::new_err(error.to_string()),
            _ => refused(&error),
        })?;
        Ok(all.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }

    /// Registers memory of the caller's, which `owner` keeps.
    fn register(
        &self,
        py: Python<'_>,
        address: u64,
        bytes: u64,
        kind: &str,
        owner: Py<PyAny>,
    ) -> PyResult<PyRegion> {
        let rights = rights(kind)?;
        // SAFETY: the array or tensor that `owner` is keeps this memory, at this address, until it is dropped: the
        // package takes both from it. Its page says what must not be touched while a transfer is under way.
        let memory = unsafe { shunt_transfer::lend(address, bytes, Box::new(owner)) };
        let memory = memory.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(PyRegion(self.call(py, |node| node.register(memory, rights))?))
    }

    #[expect(clippy::too_many_arguments, reason = "as Python calls it")]
    fn write(
        &self,
        py: Python<'_>,
        peer: u32,
        len: u64,
        imm: Option<u32>,
        from: &PyRegion,
        from_at: u64,
        to: &PyTarget,
        to_at: u64,
    ) -> PyResult<PyTransfer> {
        let (from, to) = (from.0.clone(), to.0.clone());
        self.call(py, move |node| node.write(peer, len, imm, (&from, from_at), (&to, to_at))).map(PyTransfer)
    }

    /// `from` and `to` are followed by indices of pages, bytes from one page to the next, and the first page's offset.
    #[expect(clippy::too_many_arguments, reason = "as Python calls it")]
    fn write_pages(
        &self,
        py: Python<'_>,
        peer: u32,
        page_len: u64,
        imm: Option<u32>,
        from: &PyRegion,
        from_pages: (Vec<u32>, u64, u64),
        to: &PyTarget,
        to_pages: (Vec<u32>, u64, u64),
    ) -> PyResult<PyTransfer> {
        let (from, to) = (from.0.clone(), to.0.clone());
        let pages = |(indices, stride, offset)| Pages { indices, stride, offset };
        let (from_pages, to_pages) = (pages(from_pages), pages(to_pages));
        self.call(py, move |node| node.write_pages(peer, page_len, imm, (&from, from_pages), (&to, to_pages)))
            .map(PyTransfer)
    }

    #[expect(clippy::too_many_arguments, reason = "as Python calls it")]
    fn read(
        &self,
        py: Python<'_>,
        peer: u32,
        len: u64,
        from: &PyTarget,
        from_at: u64,
        to: &PyRegion,
        to_at: u64,
    ) -> PyResult<PyTransfer> {
        let (from, to) = (from.0.clone(), to.0.clone());
        self.call(py, move |node| node.read(peer, len, (&from, from_at), (&to, to_at))).map(PyTransfer)
    }

    /// Immediates of a single write of so many bytes.
    fn writes_of(&self, py: Python<'_>, len: u64) -> PyResult<u32> {
        self.call(py, move |node| node.writes_of(len))
    }

    fn expect(
        &self,
        py: Python<'_>,
        peer: u32,
        imm: u32,
        count: u64,
        patience_ns: Option<u64>,
    ) -> PyResult<PyExpectation> {
        let patience = patience_ns.map(Duration::from_nanos);
        self.call(py, move |node| node.expect(peer, imm, count, patience)).map(PyExpectation)
    }

    /// Drops the count of an immediate.
    fn forget(&self, py: Python<'_>, peer: u32, imm: u32) -> PyResult<()> {
        self.call(py, move |node| node.forget(peer, imm))
    }

    /// How many immediates of a peer have arrived and were not taken by an expectation.
    fn counter(&self, py: Python<'_>, peer: u32, imm: u32) -> PyResult<u64> {
        self.call(py, move |node| node.counter(peer, imm))
    }

    /// Begins to write parts of a region: peer, target and offset in it, offset in the region, bytes and immediate of
    /// each.
    fn scatter(&self, py: Python<'_>, from: &PyRegion, shares: Vec<PyShare>) -> PyResult<PyScattered> {
        let from = from.0.clone();
        let targets: Vec<MrDesc> = shares.iter().map(|share| share.1.get().0.clone()).collect();
        let share = |(share, to)| {
            let (peer, _, at, from, len, imm): &PyShare = share;
            Share { peer: PeerId(*peer), len: *len, imm: *imm, from: *from, to: (to, *at) }
        };
        let all: Vec<Share<'_>> = shares.iter().zip(&targets).map(share).collect();
        self.call(py, |node| node.scatter(&from, &all)).map(PyScattered)
    }

    /// Begins to meet others, each with a region of it.
    fn barrier(
        &self,
        py: Python<'_>,
        imm: u32,
        region: &PyRegion,
        others: Vec<(u32, Py<PyTarget>)>,
        patience_ns: u64,
    ) -> PyResult<PyMet> {
        let region = region.0.clone();
        let targets: Vec<(u32, MrDesc)> =
            others.iter().map(|(peer, target)| (*peer, target.get().0.clone())).collect();
        let others: Vec<(u32, &MrDesc)> = targets.iter().map(|(peer, target)| (*peer, target)).collect();
        let patience = Duration::from_nanos(patience_ns);
        self.call(py, |node| node.barrier(imm, &region, &others, patience)).map(PyMet)
    }

    /// Watches a word of 8 bytes, which `owner` keeps.
    fn watch(&self, py: Python<'_>, address: u64, owner: Py<PyAny>) -> PyResult<PyWatcher> {
        // SAFETY: the array or tensor that `owner` is keeps this memory, at this address, until it is dropped: the
        // package takes both from it, and looks that it has 8 bytes.
        let word = unsafe { Word::of(address, owner) }?;
        self.call(py, move |node| PyWatcher::begin(node, word))
    }

    /// Ends a watcher: whether it had not ended before.
    fn unwatch(&self, py: Python<'_>, watcher: &PyWatcher) -> PyResult<bool> {
        let id = watcher.id();
        self.call(py, move |node| node.unwatch(id))
    }

    /// Nanoseconds that a peer may be without a rail before it counts as lost.
    fn give_up(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.call(py, Node::give_up)?.as_nanos() as u64)
    }

    /// Lanes left because of a fault, lanes opened, pieces sent again.
    fn counts(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        let counts = self.call(py, Node::counts)?;
        Ok((counts.closed, counts.opened, counts.again))
    }

    /// Pairs of rails, of this end and of the peer, that work now.
    fn rails_to(&self, py: Python<'_>, peer: u32) -> PyResult<Vec<(u32, u32)>> {
        self.call(py, move |node| node.rails_to(peer))
    }

    /// Makes a rail of this end fail, now: a fault as `shmem_put_bw --list-faults` writes it.
    fn inject(&self, rail: u32, fault: &str) -> PyResult<()> {
        let node = self.node()?;
        let (pe, nics) = (node.nics_of(), &node.place().nics);
        job::within("rail", rail, 0, (nics.count(pe) as u32).saturating_sub(1))?;
        match fault.parse::<Fault>() {
            Ok(Fault::Nic(kind)) => {
                nics.inject(RailAt { pe, rail }, kind).map(|_| ()).map_err(PyValueError::new_err)
            }
            Ok(_) => Err(PyValueError::new_err(format!("fault: expected one of a rail, got {fault}"))),
            Err(error) => Err(PyValueError::new_err(error.to_string())),
        }
    }

    /// Ends its thread. What is under way ends with an error.
    fn close(&self, py: Python<'_>) {
        let node = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(node));
    }
}

/// Memory of this end, registered on every rail.
#[pyclass(frozen, name = "TransferRegion", module = "shunt_ep._native")]
pub struct PyRegion(Region);

#[pymethods]
impl PyRegion {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// What a peer must know of it.
    fn describe<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.describe().to_bytes())
    }
}

/// A region of a peer.
#[pyclass(frozen, name = "TransferTarget", module = "shunt_ep._native")]
pub struct PyTarget(MrDesc);

#[pymethods]
impl PyTarget {
    #[new]
    fn new(description: &[u8]) -> PyResult<Self> {
        MrDesc::from_bytes(description).map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}
