//! The names that jobs have here: `H:<host>:<number>`.

use super::HANDLE_BYTES_MAX;
use super::number::Decimal;

/// What all handles of this server begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandlePrefix(Box<[u8]>);

/// One job's handle, without an allocation.
#[derive(Clone, Copy)]
pub struct Handle {
    bytes: [u8; HANDLE_BYTES_MAX],
    length: usize,
}

/// The digits of the largest job number.
const NUMBER_BYTES_MAX: usize = 20;

/// The longest prefix that, with the number, leaves room for the NUL of C clients.
const PREFIX_BYTES_MAX: usize = HANDLE_BYTES_MAX - 1 - NUMBER_BYTES_MAX;

impl HandlePrefix {
    /// `H:<host>:`, the host's name cut to what a handle can hold. Letters that would break a line
    /// or an argument become `_`.
    #[must_use]
    pub fn of_host(host: &str) -> HandlePrefix {
        let printable = |letter: u8| if letter.is_ascii_graphic() { letter } else { b'_' };
        let host = host.bytes().map(printable);
        let text = b"H:".iter().copied().chain(host).take(PREFIX_BYTES_MAX - 1);
        HandlePrefix(text.chain([b':']).collect())
    }

    /// The handle of this job.
    #[must_use]
    pub fn handle(&self, number: u64) -> Handle {
        let digits = Decimal::new(number);
        let (prefix, digits) = (&self.0[..], digits.as_bytes());
        let mut bytes = [0; HANDLE_BYTES_MAX];
        let length = prefix.len() + digits.len();
        bytes[..prefix.len()].copy_from_slice(prefix);
        bytes[prefix.len()..length].copy_from_slice(digits);
        Handle { bytes, length }
    }
}

impl Handle {
    /// As it is sent.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::JobId;
    use spindle_core::address::from_gearman_handle;

    #[test]
    fn a_handle_names_its_job_whatever_the_host_is_called() {
        for host in ["kitchen", "", "fe80::1", "a:7", &"x".repeat(100)] {
            let prefix = HandlePrefix::of_host(host);
            for number in [1, 10, (1 << 53) - 1] {
                let handle = prefix.handle(number);
                assert_eq!(from_gearman_handle(handle.as_bytes()), Some(JobId(number)), "{host}");
            }
        }
        assert_eq!(HandlePrefix::of_host("kitchen").handle(42).as_bytes(), b"H:kitchen:42");
    }

    #[test]
    fn a_handle_fits_into_what_c_clients_keep_it_in() {
        let handle = HandlePrefix::of_host(&"x".repeat(100)).handle(u64::MAX);
        assert_eq!(handle.as_bytes().len(), HANDLE_BYTES_MAX - 1);
        assert!(handle.as_bytes().ends_with(b":18446744073709551615"));
    }

    #[test]
    fn a_host_cannot_break_out_of_its_handle() {
        let handle = HandlePrefix::of_host("a\0b\nc\td e").handle(7);
        assert_eq!(handle.as_bytes(), b"H:a_b_c_d_e:7");
    }
}
