//! Calls that need a descriptor and change no file.

use super::*;

/// Whether the process is out of descriptors.
pub(super) fn is_refused() -> bool {
    let Some(entered) = enter() else { return false };
    let is_refused = entered.troubles().is_out_of_descriptors();
    if is_refused {
        entered.count(|counts| counts.no_descriptor += 1);
    }
    is_refused
}

hooks! {
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
        if is_refused() {
            return fail(libc::EMFILE);
        }
        system_call!(libc::SYS_socket, family, kind, protocol) as c_int
    }

    fn accept(fd: c_int, address: *mut libc::sockaddr, len: *mut libc::socklen_t) -> c_int {
        if is_refused() {
            return fail(libc::EMFILE);
        }
        system_call!(libc::SYS_accept, fd, address, len) as c_int
    }

    fn accept4(
        fd: c_int,
        address: *mut libc::sockaddr,
        len: *mut libc::socklen_t,
        flags: c_int,
    ) -> c_int {
        if is_refused() {
            return fail(libc::EMFILE);
        }
        system_call!(libc::SYS_accept4, fd, address, len, flags) as c_int
    }
}
