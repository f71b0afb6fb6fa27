//! Bytes to the other process, and from it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Both ends of a stream.
pub fn two_ends() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    Ok((one, listener.accept()?.0))
}

/// Sends bytes and gets as many.
pub fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut answer = vec![0; bytes.len()];
    stream
        .write_all(bytes)
        .and_then(|()| stream.read_exact(&mut answer))
        .map_err(|error| error.to_string())?;
    Ok(answer)
}
