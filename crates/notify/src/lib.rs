//! What a daemon tells its service manager: that it is ready, reads its settings anew, or ends
//! (sd_notify(3)).
//!
//! The service manager says in `NOTIFY_SOCKET` where it listens: at a path or, with `@` before the
//! name, at an abstract socket, which is in no folder. Managers of containers use those. The crate
//! `sd-notify` knows only paths.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::{env, io};

pub use sd_notify::NotifyState;

/// Tells the service manager, if there is one.
///
/// # Errors
///
/// It says where it listens, and does not listen there.
pub fn notify(states: &[NotifyState<'_>]) -> io::Result<()> {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => notify_abstract(OsStr::from_bytes(name), states),
        None => sd_notify::notify(false, states),
    }
}

fn notify_abstract(name: &OsStr, states: &[NotifyState<'_>]) -> io::Result<()> {
    let mut message = String::new();
    for state in states {
        // Writing into a string cannot fail.
        let _ = writeln!(message, "{state}");
    }
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&SocketAddr::from_abstract_name(name.as_bytes())?)?;
    // A datagram is sent as a whole or not at all.
    socket.send(message.as_bytes()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abstract_socket_hears_all_states_in_one_message() {
        let name = format!("spindle-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let states = [NotifyState::Reloading, NotifyState::MonotonicUsec(7)];
        assert!(notify_abstract(OsStr::new(&name), &states).is_err(), "nobody listens");
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        notify_abstract(OsStr::new(&name), &states).unwrap();
        let mut heard = [0; 64];
        let length = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"RELOADING=1\nMONOTONIC_USEC=7\n");
    }
}
