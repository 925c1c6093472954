//! How long certificates are valid, and what for.

use std::path::Path;
use std::time::SystemTime;

use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::BasicConstraints;

use crate::files::{FileError, certificates, unusable};

/// When the certificates of a file are valid, all of them: from, until (RFC 5280, 4.1.2.5).
///
/// # Errors
/// [`FileError`]; also when one of them is no certificate.
pub fn validity(path: &Path) -> Result<(SystemTime, SystemTime), FileError> {
    let mut both = (SystemTime::UNIX_EPOCH, None);
    for certificate in certificates(path)? {
        let read = Certificate::from_der(&certificate).map_err(|error| unusable(path, error))?;
        let validity = read.tbs_certificate.validity;
        let until = SystemTime::UNIX_EPOCH + validity.not_after.to_unix_duration();
        both.0 = both.0.max(SystemTime::UNIX_EPOCH + validity.not_before.to_unix_duration());
        both.1 = Some(both.1.map_or(until, |first: SystemTime| first.min(until)));
    }
    Ok((both.0, both.1.unwrap_or(SystemTime::UNIX_EPOCH)))
}

/// Whether the first certificate of a file, which is the one that is shown, may sign others (`cA` of
/// RFC 5280, 4.2.1.9). Clients on rustls refuse to be shown such a one.
///
/// # Errors
/// [`FileError`]; also when it is no certificate.
pub fn may_sign(path: &Path) -> Result<bool, FileError> {
    let Some(shown) = certificates(path)?.into_iter().next() else { return Ok(false) };
    let read = Certificate::from_der(&shown).map_err(|error| unusable(path, error))?;
    let constraints = read.tbs_certificate.get::<BasicConstraints>();
    let constraints = constraints.map_err(|error| unusable(path, error))?;
    Ok(constraints.is_some_and(|(_, constraints)| constraints.ca))
}
