//! Two processes and a store on one machine.

use super::*;
use crate::served::Served;
use crate::store::Store;
use shunt_bootstrap::tcp::Secret;
use std::net::TcpListener;

fn remote(at: SocketAddr, secret: &Secret) -> Remote {
    let lines = Lines::open(own_address(at).unwrap(), secret).unwrap();
    let served = Served::new(at, secret, lines.name());
    Remote::new(lines, Box::new(served))
}

fn secret() -> Secret {
    Secret::from_text("sixteen letters!").unwrap()
}

/// Carries the store and both processes on until `done`.
fn until(
    store: &mut Option<Store>,
    both: &mut [Remote; 2],
    mut done: impl FnMut(&mut [Remote; 2]) -> bool,
) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if let Some(store) = store {
            store.carry_on(1);
        }
        both.iter_mut().for_each(Remote::carry_on);
        if done(both) {
            return true;
        }
    }
    false
}

#[test]
fn processes_find_each_other_and_go_on_without_the_store() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mut store = Some(Store::new(listener, &secret()).unwrap());
    let mut both = [0, 1].map(|_| remote(at, &secret()));
    let (end, name) = (([5; 16], 0x99), both[0].name().to_owned());
    both[0].put(end);
    assert!(until(&mut store, &mut both, |both| both[1].get(end).as_ref() == Some(&name)));
    assert_eq!(both[1].get(([5; 16], 0x98)), None);
    store = None;
    both[1].send(&name, b"one").unwrap();
    both[1].send(&name, b"two").unwrap();
    let (mut came, mut from) = (Vec::new(), String::new());
    assert!(until(&mut store, &mut both, |both| {
        while let Some((name, bytes)) = both[0].receive() {
            came.push(bytes);
            from = name;
        }
        came.len() == 2
    }));
    assert_eq!((came, &from[..]), (vec![b"one".to_vec(), b"two".to_vec()], both[1].name()));
    both[0].send(&from, b"back").unwrap();
    assert!(until(&mut store, &mut both, |both| both[1].receive() == Some((name.clone(), b"back".to_vec()))));
    // A descriptor whose other end has closed is ready for ever: the agent that waited for it never slept.
    let waits_for = both[1].fds().len();
    both[0] = remote(at, &secret());
    assert!(until(&mut store, &mut both, |both| both[1].fds().len() < waits_for));
    // One that has ended is told of as soon as the system knows.
    assert!(until(&mut store, &mut both, |both| {
        both[1].send(&name, b"gone").is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
    }));
}

#[test]
fn an_entry_goes_with_its_process_and_another_secret_finds_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mut store = Some(Store::new(listener, &secret()).unwrap());
    let other = Secret::from_text("seventeen letters").unwrap();
    let mut both = [remote(at, &secret()), remote(at, &other)];
    both[0].put(([5; 16], 1));
    both[1].put(([6; 16], 1));
    assert!(until(&mut store, &mut both, |both| both[1].is_open() == Some(false)));
    let told = both[1].remarks.take();
    let says = told.len() == 1 && told[0].starts_with(&format!("the store at {at}: "));
    assert!(says && told[0].ends_with("; new connections are unprotected"), "{told:?}");
    assert_eq!(both[0].remarks.take(), [""; 0]);
    let store_knows = |store: &Option<Store>| store.as_ref().map(Store::len);
    let mut known = None;
    let end = Instant::now() + Duration::from_secs(20);
    while known != Some(1) && Instant::now() < end {
        until(&mut store, &mut both, |_| true);
        known = store_knows(&store);
    }
    assert_eq!(known, Some(1), "only what has the secret");
    both[0] = remote(at, &secret());
    while known != Some(0) && Instant::now() < end {
        until(&mut store, &mut both, |_| true);
        known = store_knows(&store);
    }
    assert_eq!(known, Some(0), "its process is gone");
}
