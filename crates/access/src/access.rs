//! What doors hold: the identities that are in force, and whether everybody must identify
//! themselves.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use spindle_limits::RequestRates;

use crate::faults::Faults;
use crate::identity::Identity;
use crate::login::Login;
use crate::token::Digest;
use crate::tokens::{Stamp, Tokens, TokensError};

/// Who may come in through a door. Clones share one state.
#[derive(Clone, Debug)]
pub struct Access {
    source: Arc<Source>,
    is_required: bool,
    /// How often they may ask; none: as often as they like, and nothing is counted.
    rates: Option<Arc<RequestRates>>,
    clock: Clock,
    faults: Faults,
}

/// What time it is, for the expiry of tokens.
#[derive(Clone)]
struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Default for Clock {
    fn default() -> Clock {
        Clock(Arc::new(SystemTime::now))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The tokens file, as far as it is read.
#[derive(Debug, Default)]
struct Source {
    path: Option<PathBuf>,
    tokens: RwLock<Arc<Tokens>>,
    /// Rises whenever `tokens` changes.
    generation: AtomicU64,
    /// What the file was when it was looked at last.
    seen: Mutex<Option<Stamp>>,
}

/// The result of looking at the tokens file again.
#[derive(Debug)]
pub enum Look {
    /// It is as it was.
    Unchanged,
    /// It has changed and is in force, with this many entries.
    Read(usize),
    /// It has changed and cannot be used: the identities from before stay in force.
    Kept(TokensError),
}

impl Look {
    /// Logs the result, unless nothing has changed.
    pub fn log(&self) {
        match self {
            Look::Unchanged => {}
            Look::Read(count) => tracing::info!("the tokens file was read anew: {count} entries"),
            Look::Kept(error) => {
                tracing::error!("{error}; the tokens that were read before stay in force");
            }
        }
    }
}

impl Access {
    /// Everybody who presents no token may do everything. No token is known.
    pub fn open() -> Access {
        Access::of_source(Source::default())
    }

    /// The identities of a tokens file. Nobody has to identify themselves: see
    /// [`Access::required`].
    ///
    /// # Errors
    ///
    /// The file cannot be used, and why.
    pub fn of_file(path: &Path) -> Result<Access, TokensError> {
        let (tokens, stamp) = Tokens::read(path)?;
        let source = Source {
            path: Some(path.to_owned()),
            tokens: RwLock::new(Arc::new(tokens)),
            generation: AtomicU64::new(0),
            seen: Mutex::new(Some(stamp)),
        };
        Ok(Access::of_source(source))
    }

    fn of_source(source: Source) -> Access {
        Access {
            source: Arc::new(source),
            is_required: false,
            rates: None,
            clock: Clock::default(),
            faults: Faults::default(),
        }
    }

    /// Identities that are in no file. Nobody has to identify themselves: see [`Access::required`].
    pub fn of_tokens(tokens: Tokens) -> Access {
        let access = Access::open();
        access.replace(tokens);
        access
    }

    /// Puts other identities in force, at once and for connections that are open, too.
    pub fn replace(&self, tokens: Tokens) {
        *self.source.tokens.write() = Arc::new(tokens);
        self.source.generation.fetch_add(1, Ordering::Release);
    }

    /// The same identities, for a door that requires everybody to identify themselves, or does not.
    #[must_use]
    pub fn required(&self, is_required: bool) -> Access {
        Access { is_required, ..self.clone() }
    }

    /// The same, with limits on how often clients may send requests.
    #[must_use]
    pub fn with_rates(self, rates: Option<Arc<RequestRates>>) -> Access {
        Access { rates, ..self }
    }

    /// The same with another clock, with which tests let time pass.
    #[must_use]
    pub fn with_clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Access {
        Access { clock: Clock(Arc::new(clock)), ..self }
    }

    /// Plants faults, for the simulator to find.
    #[doc(hidden)]
    #[must_use]
    pub fn planted(self, faults: Faults) -> Access {
        Access { faults, ..self }
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    /// A new connection. `certificate` is the common name of its client's certificate, if it showed
    /// one that was verified.
    pub fn login(&self, certificate: Option<&Arc<str>>) -> Login {
        Login::new(self.clone(), certificate)
    }

    /// Looks whether the file has changed, and reads it if so. If not, this costs one system call.
    pub fn look_again(&self) -> Look {
        let Some(path) = &self.source.path else { return Look::Unchanged };
        let mut seen = self.source.seen.lock();
        let now = Stamp::of(path);
        if *seen == now {
            return Look::Unchanged;
        }
        *seen = now;
        self.read(path)
    }

    /// Reads the file, whether it has changed or not. Without a file, nothing changes.
    pub fn read_again(&self) -> Look {
        let Some(path) = &self.source.path else { return Look::Unchanged };
        let mut seen = self.source.seen.lock();
        *seen = Stamp::of(path);
        self.read(path)
    }

    fn read(&self, path: &Path) -> Look {
        match Tokens::read(path) {
            Ok((tokens, _)) => {
                let count = tokens.len();
                self.replace(tokens);
                Look::Read(count)
            }
            Err(error) => Look::Kept(error),
        }
    }

    /// How often they may ask; none: as often as they like.
    pub fn rates(&self) -> Option<&RequestRates> {
        self.rates.as_deref()
    }

    pub(crate) fn now(&self) -> SystemTime {
        (self.clock.0)()
    }

    /// Whether everybody must identify themselves.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    pub(crate) fn generation(&self) -> u64 {
        self.source.generation.load(Ordering::Acquire)
    }

    pub(crate) fn by_digest(&self, digest: Digest) -> Option<Arc<Identity>> {
        self.source.tokens.read().by_digest(digest)
    }

    pub(crate) fn by_certificate(&self, name: &str) -> Option<Arc<Identity>> {
        self.source.tokens.read().by_certificate(name)
    }
}
