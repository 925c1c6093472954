//! TLS, for everything of Spindle that listens or connects.
//!
//! - [`ServerTls`]: certificate and key of the listeners, and the authority of client certificates.
//!   [`ServerTls::reload`] reads the files anew; handshakes from then on use what they hold.
//! - [`ListenerTls`]: what one listener makes of a connection, judged by its first byte, so that
//!   one port serves TLS and plain text; [`TlsMode`] is what its setting says.
//! - [`client`]: which servers our own clients trust, and how they identify themselves; the one place that
//!   builds a configuration of rustls for them.
//! - [`distrust`]: why the certificate of the other side is refused, in words for a person.
//! - [`common_name`]: who a certificate is for.
//! - [`Flaw`]: why clients refuse the certificate that a server shows, or soon will.
//! - [`Records`]: whether a record has begun and not ended.
//! - `stream` (feature `tokio`): a connection that is plain or encrypted, for async listeners.
//!
//! Cryptography is ring, versions are TLS 1.2 and 1.3. There is no renegotiation and no early data.

pub mod client;
mod clock;
mod distrust;
mod files;
mod listener;
mod mode;
mod name;
mod records;
mod server;
mod shown;
#[cfg(feature = "tokio")]
pub mod stream;
#[cfg(feature = "tokio")]
mod whole_records;

pub use distrust::distrust;
pub use files::FileError;
pub use listener::{FirstByte, ListenerTls, TLS_FIRST_BYTE};
pub use mode::{NoTlsMode, TlsMode};
pub use name::common_name;
pub use records::Records;
pub use server::{Handshakes, ServerFiles, ServerTls, Speaks};
pub use shown::Flaw;
