//! Certificates and keys, read from files in PEM.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::shown::Flaw;

/// Why a file cannot be used. Each says which file, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not there, or may not be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Part of it is PEM, but not all of it.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the reader stopped.
        reason: String,
    },
    /// It has no block `CERTIFICATE`.
    #[error("there is no certificate in {} (PEM is expected)", .0.display())]
    NoCertificate(PathBuf),
    /// It has no block with a private key.
    #[error(
        "there is no private key in {} (PEM is expected; an encrypted key must be decrypted first)",
        .0.display()
    )]
    NoKey(PathBuf),
    /// Every user of the machine can read or write the key.
    #[error(
        "every user of this machine has access to the private key {} (mode {mode:04o}): \
         `chmod o-rwx` it, and replace it if others may have read it",
        path.display()
    )]
    OpenKey {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The certificate is for another key.
    #[error(
        "the private key {} does not fit the certificate {}",
        key.display(),
        certificate.display()
    )]
    Mismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// It is not valid now, and must not take the place of one that is.
    #[error("{} {flaw}", path.display())]
    OutOfTime {
        /// The file.
        path: PathBuf,
        /// Since when, or until when.
        flaw: Flaw,
    },
    /// What is in it will not do: a certificate that is none, a kind of key that is not supported.
    #[error("cannot use {}: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The certificates of a file, in its order. Other blocks are skipped.
///
/// # Errors
/// [`FileError`]; also when there is none.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let text = fs::read(path).map_err(|source| unreadable(path, source))?;
    let read = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|error| damaged(path, &error))?;
    if read.is_empty() {
        return Err(FileError::NoCertificate(path.to_owned()));
    }
    Ok(read)
}

/// The private key of a listener, as [`private_key`].
///
/// # Errors
/// [`FileError`]; also when every user of the machine has access to it.
pub(crate) fn guarded_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let failed = |source| unreadable(path, source);
    // One open file, so that what is judged is what is read.
    let mut file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(FileError::OpenKey { path: path.to_owned(), mode });
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed)?;
    key_of(path, &text)
}

/// The first private key of a file: PKCS #8, PKCS #1 or SEC 1.
///
/// # Errors
/// [`FileError`]; also when there is none.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    key_of(path, &fs::read(path).map_err(|source| unreadable(path, source))?)
}

fn key_of(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, FileError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        pem::Error::NoItemsFound => FileError::NoKey(path.to_owned()),
        other => damaged(path, &other),
    })
}

/// The certificates of a file as those of authorities.
///
/// # Errors
/// [`FileError`]; also when one of them is no certificate.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, error))?;
    }
    Ok(roots)
}

pub(crate) fn unusable(path: &Path, reason: impl ToString) -> FileError {
    FileError::Unusable { path: path.to_owned(), reason: reason.to_string() }
}

fn unreadable(path: &Path, source: io::Error) -> FileError {
    FileError::Unreadable { path: path.to_owned(), source }
}

fn damaged(path: &Path, error: &pem::Error) -> FileError {
    FileError::Damaged { path: path.to_owned(), reason: error.to_string() }
}
