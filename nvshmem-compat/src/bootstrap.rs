//! How a process finds the others: by the attributes it was initialised with, else by its launcher's variables, else it
//! is alone.

use crate::attr::{InitAttr, flags};
use crate::failure::InitError;
use crate::mpi::{Mpi, MpiError};
use shunt_host::connect::tcp::interface::InterfaceSpec;
use shunt_host::connect::tcp::{JoinError, JoinOptions, RootAddress, Secret, UniqueId};
use shunt_host::job::{Flags, Job, JobError, Joining, Launcher, Meeting};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Sockets of unique ids that this process made.
static LISTENERS: Mutex<BTreeMap<[u8; 128], TcpListener>> = Mutex::new(BTreeMap::new());

/// Keeps the socket of a unique id until PE 0 begins with it.
pub fn remember(id: [u8; 128], listener: TcpListener) {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner).insert(id, listener);
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How to find the others.
///
/// # Errors
/// The attributes or the variables make no job.
pub fn joining(asked: u32, attr: Option<&InitAttr>, lookup: Lookup<'_>) -> Result<Joining, InitError> {
    let (options, fabric, made_up) = match asked {
        flags::UNIQUE_ID => by_unique_id(attr, lookup)?,
        0 => return by_place(lookup),
        flags::MPI_COMM => {
            let communicator = communicator(attr)?;
            by_mpi(&mpi(lookup)?, communicator, lookup)?
        }
        other => return Err(refused(other)),
    };
    Ok(Joining { options, fabric, made_up })
}

/// A further init of a library that is up: what it is given must name the PE that it is.
///
/// # Errors
/// It is no init, or that of another PE.
pub fn same_place(asked: u32, attr: Option<&InitAttr>, pe: u32, pes: u32) -> Result<(), InitError> {
    match asked {
        0 => Ok(()),
        flags::MPI_COMM => communicator(attr).map(|_| ()),
        flags::UNIQUE_ID => {
            let uid = attr.ok_or(NO_ATTRIBUTES)?.args.uid;
            if (i64::from(uid.rank), i64::from(uid.ranks)) == (pe.into(), pes.into()) {
                return Ok(());
            }
            Err(InitError::Already { met: uid.rank, met_pes: uid.ranks, pe, pes })
        }
        other => Err(refused(other)),
    }
}

const NO_ATTRIBUTES: InitError =
    InitError::Unsupported("no attributes are given; give those of nvshmemx_set_attr_uniqueid_args");

fn communicator(attr: Option<&InitAttr>) -> Result<*const c_void, InitError> {
    let given = attr.map(|attr| attr.mpi_comm.cast_const()).filter(|communicator| !communicator.is_null());
    given.ok_or(InitError::Unsupported("no MPI communicator is given; give the address of an MPI_Comm"))
}

/// Flags that nobody can be initialised by.
fn refused(asked: u32) -> InitError {
    match asked {
        flags::SHMEM => InitError::Unsupported("OpenSHMEM cannot be started from; a unique id can"),
        flags::THREAD_PES => InitError::Unsupported("a PE is a process; threads cannot be PEs"),
        met => {
            let want = "0, NVSHMEMX_INIT_WITH_UNIQUEID or NVSHMEMX_INIT_WITH_MPI_COMM".to_owned();
            InitError::Attribute { what: "init flags", met: met.into(), want }
        }
    }
}

fn mpi(lookup: Lookup<'_>) -> Result<Mpi, MpiError> {
    Mpi::load(lookup("NVSHMEM_BOOTSTRAP_MPI_PLUGIN").as_deref())
}

/// The job that the environment names. A program that Open MPI's launcher started may speak MPI itself: the plugin is
/// asked first, and PMIx where there is no plugin.
fn by_place(lookup: Lookup<'_>) -> Result<Joining, InitError> {
    let by_mpi = |mpi: &Mpi| -> Result<Joining, InitError> {
        let (options, fabric, made_up) = by_mpi(mpi, std::ptr::null(), lookup)?;
        Ok(Joining { options, fabric, made_up })
    };
    if lookup("NVSHMEM_BOOTSTRAP").as_deref() == Some("MPI") {
        return by_mpi(&mpi(lookup)?);
    }
    let open_mpi = |launcher| launcher == Launcher::OpenMpi;
    match Job::from_lookup(&Flags::default(), lookup) {
        Err(JobError::NoRoot { launcher, .. }) if launcher == Launcher::OpenMpi.name() => {
            by_mpi(&mpi(lookup)?)
        }
        Err(error) => Err(error.into()),
        Ok(None) => {
            let (options, fabric, made_up) = alone()?;
            Ok(Joining { options, fabric, made_up })
        }
        Ok(Some(job)) if open_mpi(job.launcher) && job.meeting == Meeting::Pmix => match mpi(lookup) {
            Ok(mpi) => by_mpi(&mpi),
            Err(_) => Ok(job.join()?),
        },
        Ok(Some(job)) => Ok(job.join()?),
    }
}

/// MPI tells rank and size, and carries PE 0's unique id.
fn by_mpi(
    mpi: &Mpi,
    communicator: *const c_void,
    lookup: Lookup<'_>,
) -> Result<(JoinOptions, String, bool), InitError> {
    let (rank, world) = mpi.place(communicator)?;
    let interface = interface(lookup)?;
    let made = if rank == 0 { Some(UniqueId::create(interface.as_ref())?) } else { None };
    let mut bytes = made.as_ref().map_or([0; 128], |(id, _)| id.to_bytes());
    mpi.broadcast(communicator, &mut bytes)?;
    let id = UniqueId::from_bytes(&bytes)?;
    let mut options = JoinOptions::new(rank, world, id.root(), id.secret());
    options.listener = made.map(|(_, listener)| listener);
    options.interface = interface;
    Ok((options, fabric_of(&bytes), true))
}

/// A fabric for the processes of one machine that have this id.
fn fabric_of(id: &[u8; 128]) -> String {
    let sum: String = id[120..].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("uid-{sum}")
}

fn by_unique_id(
    attr: Option<&InitAttr>,
    lookup: Lookup<'_>,
) -> Result<(JoinOptions, String, bool), InitError> {
    let uid = attr.ok_or(NO_ATTRIBUTES)?.args.uid;
    let ranks = u32::try_from(uid.ranks).ok().filter(|ranks| *ranks > 0);
    let want = "a number from 1 on".to_owned();
    let ranks = ranks.ok_or(InitError::Attribute { what: "number of PEs", met: uid.ranks.into(), want })?;
    let rank = u32::try_from(uid.rank).ok().filter(|rank| *rank < ranks);
    let want = format!("a number from 0 to {}", ranks - 1);
    let rank = rank.ok_or(InitError::Attribute { what: "number of this PE", met: uid.rank.into(), want })?;
    // SAFETY: null, or the id that the caller named, which lives until it has initialised.
    let Some(id) = (unsafe { uid.id.as_ref() }) else {
        return Err(InitError::Unsupported("no unique id is given; give one of nvshmemx_get_uniqueid"));
    };
    let mut bytes = [0; 128];
    for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(id.0) {
        *to = word.to_ne_bytes();
    }
    let parsed = UniqueId::from_bytes(&bytes)?;
    let listener = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&bytes);
    if listener.is_some() != (rank == 0) {
        // Given back: the mistake may be mended.
        listener.into_iter().for_each(|listener| remember(bytes, listener));
        return Err(InitError::Unsupported(
            "the unique id must be made by the process that is PE 0 of its job, once for each job",
        ));
    }
    let mut options = JoinOptions::new(rank, ranks, parsed.root(), parsed.secret());
    options.listener = listener;
    options.interface = interface(lookup)?;
    Ok((options, fabric_of(&bytes), true))
}

fn interface(lookup: Lookup<'_>) -> Result<Option<InterfaceSpec>, InitError> {
    let spec = lookup("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME").map(|text| text.parse()).transpose();
    spec.map_err(|_| {
        InitError::Unsupported("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME is not understood; see shunt env --long")
    })
}

/// A job of one.
fn alone() -> Result<(JoinOptions, String, bool), InitError> {
    let failed = |error: std::io::Error| {
        InitError::Join(JoinError::Listen { root: "127.0.0.1:0".into(), detail: error.to_string() })
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let root = RootAddress::from(listener.local_addr().map_err(failed)?);
    let fabric = format!("alone-{}-{}", std::process::id(), root.port());
    let mut options = JoinOptions::new(0, 1, root, Secret::random().map_err(JoinError::from)?);
    options.listener = Some(listener);
    Ok((options, fabric, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::UniqueIdBytes;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn refused(asked: u32, attr: Option<&InitAttr>) -> String {
        joining(asked, attr, &nothing).expect_err("refused").to_string()
    }

    #[test]
    fn a_process_that_nobody_started_is_alone() {
        let joining = joining(0, None, &nothing).unwrap();
        assert_eq!((joining.options.rank, joining.options.world), (0, 1));
        assert!(joining.options.listener.is_some() && joining.fabric.starts_with("alone-"));
        shunt_host::job::check_fabric_name(&joining.fabric).unwrap();
    }

    #[test]
    fn the_maker_of_a_unique_id_is_pe_0() {
        let (id, listener) = UniqueId::create(None).unwrap();
        let bytes = id.to_bytes();
        let mut words = UniqueIdBytes([0; 32]);
        for (word, chunk) in words.0.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = i32::from_ne_bytes(*chunk);
        }
        let attr = |rank, ranks| InitAttr::with_unique_id(rank, ranks, (&raw const words).cast_mut());
        remember(bytes, listener);
        assert!(refused(8, Some(&attr(1, 2))).contains("PE 0"));
        let maker = joining(8, Some(&attr(0, 2)), &nothing).unwrap();
        assert!(maker.options.listener.is_some() && maker.options.root == id.root());
        shunt_host::job::check_fabric_name(&maker.fabric).unwrap();
        assert!(refused(8, Some(&attr(0, 2))).contains("once for each job"));
        let other = joining(8, Some(&attr(1, 2)), &nothing).unwrap();
        assert_eq!((other.fabric, other.options.rank), (maker.fabric, 1));
        assert!(refused(8, Some(&attr(2, 2))).contains("from 0 to 1"));
        assert!(refused(8, Some(&attr(0, 0))).contains("number of PEs: expected"));
        words.0[3] ^= 1;
        let attr = InitAttr::with_unique_id(1, 2, (&raw const words).cast_mut());
        assert!(refused(8, Some(&attr)).contains("unique id"));
    }

    #[test]
    fn a_further_init_names_the_pe_that_is_up() {
        let attr = |rank, ranks| InitAttr::with_unique_id(rank, ranks, std::ptr::null_mut());
        let again = |asked, attr: Option<&InitAttr>| same_place(asked, attr, 1, 3).map_err(|e| e.to_string());
        again(0, None).unwrap();
        again(8, Some(&attr(1, 3))).unwrap();
        for (rank, ranks) in [(0, 3), (1, 2), (-1, -1)] {
            let said = again(8, Some(&attr(rank, ranks))).unwrap_err();
            assert!(
                said.contains(&format!("PE {rank} of {ranks} is named")) && said.contains("PE 1 of 3"),
                "{said}"
            );
        }
        let mut word = 0;
        again(2, Some(&InitAttr::with_mpi_comm((&raw mut word).cast()))).unwrap();
        for (asked, why) in
            [(2, "no MPI communicator"), (4, "OpenSHMEM"), (1, "process"), (16, "got 16"), (8, "no attr")]
        {
            assert!(again(asked, None).unwrap_err().contains(why), "{asked}");
        }
    }

    #[test]
    fn other_ways_to_start_are_refused_with_what_there_is() {
        for (asked, why) in [
            (2, "no MPI communicator"),
            (4, "OpenSHMEM"),
            (1, "process"),
            (16, "init flags: expected"),
            (8, "no attributes"),
        ] {
            assert!(refused(asked, None).contains(why), "{asked}");
        }
        let attr = InitAttr::with_unique_id(0, 1, std::ptr::null_mut());
        assert!(refused(8, Some(&attr)).contains("no unique id"));
    }
}
