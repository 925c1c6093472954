//! Where the log is, and how it behaves.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use spindle_log::Opening;
use spindle_tls::client::{ClientFiles, Identity, Trust};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::error::OpenError;

const RUN_RECORDS: u64 = 65_536;
const RUN_BYTES: u64 = 64 * 1024 * 1024;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// PostgreSQL cuts longer names.
const NAME_BYTES_MAX: usize = 63;

/// Where a log is, and how it behaves. Made from a URL.
#[derive(Clone)]
pub struct PgsqlLogOptions {
    pub(crate) config: Config,
    pub(crate) tls: Option<ClientFiles>,
    pub(crate) schema: String,
    /// A run is closed when it has this many records. A trim drops whole runs.
    pub run_records: u64,
    /// A run is closed when it has this many bytes, the framing included.
    pub run_bytes: u64,
    /// How long a record waits for a server that cannot be reached, or has no room, before its
    /// answer is Unknown; and how long reads, and calls that wait for a confirmation, take at most.
    /// A server that has the record and waits for its standby is waited for without a limit.
    pub answer_within: Duration,
    /// What the log is opened for.
    pub opening: Opening,
    /// Take a server with `fsync` or `full_page_writes` off: a crash of its machine can damage the
    /// database then.
    pub accept_unsafe_server: bool,
}

impl PgsqlLogOptions {
    /// Reads `postgres://user:password@host:port,host:port/database?parameter=value&...`.
    ///
    /// Of the parameters that other clients know, these matter: `sslmode` (`disable`, `prefer`,
    /// `require`, `verify-full`; without it `prefer`), `sslrootcert` (the file of the authority for
    /// `verify-full`; without it those that browsers trust), `sslcert` and `sslkey`. `schema` is
    /// where the tables are (`spindle`).
    ///
    /// # Errors
    /// [`OpenError::Url`].
    pub fn from_url(url: &str) -> Result<PgsqlLogOptions, OpenError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut own = Own::default();
        let mut others = Vec::new();
        for piece in query.split('&').filter(|piece| !piece.is_empty()) {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            let value = percent_decode_str(value).decode_utf8();
            let value = value.map_err(|_| wrong(format!("{name} is not UTF-8")))?;
            if !own.take(name, value.into_owned())? {
                others.push(piece);
            }
        }
        let rest = format!("{base}?{}", others.join("&"));
        // The driver's message does not repeat the URL, which may hold a password.
        let mut config: Config =
            rest.parse().map_err(|error| wrong(crate::error::reason_of(&error)))?;
        let tls = own.tls(&mut config)?;
        if config.get_hosts().is_empty() || !config.get_hostaddrs().is_empty() {
            return Err(wrong("name the servers as host:port, separated by commas".to_owned()));
        }
        let (hosts, ports) = (config.get_hosts().len(), config.get_ports().len());
        if ports > 1 && ports != hosts {
            return Err(wrong(format!("{hosts} hosts have {ports} ports")));
        }
        Ok(PgsqlLogOptions {
            config,
            tls,
            schema: own.schema.unwrap_or_else(|| "spindle".to_owned()),
            run_records: RUN_RECORDS,
            run_bytes: RUN_BYTES,
            answer_within: ANSWER_WITHIN,
            opening: Opening::Node,
            accept_unsafe_server: false,
        })
    }

    /// Puts the tables into this schema.
    ///
    /// # Errors
    /// [`OpenError::Url`] when the name is not made of small letters, digits and underscores.
    pub fn with_schema(mut self, schema: &str) -> Result<PgsqlLogOptions, OpenError> {
        self.schema = checked_schema(schema.to_owned())?;
        Ok(self)
    }

    /// Selects one of several logs beside each other: the first is where the URL says, the others are in schemas whose
    /// names end in `_1`, `_2` and so on.
    ///
    /// # Errors
    /// [`OpenError::Url`] when that name is too long.
    pub fn of_shard(self, shard: u8) -> Result<PgsqlLogOptions, OpenError> {
        match shard {
            0 => Ok(self),
            _ => {
                let schema = format!("{}_{shard}", self.schema);
                self.with_schema(&schema)
            }
        }
    }

    /// Logs in with this password, whatever the URL says.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> PgsqlLogOptions {
        self.config.password(password);
        self
    }

    /// Talks only to a server that the authorities in this file (PEM) vouch for, as with
    /// `sslmode=verify-full&sslrootcert=FILE`.
    ///
    /// # Errors
    /// [`OpenError::Url`] when the URL says `sslmode=disable`.
    pub fn with_authority(mut self, file: &Path) -> Result<PgsqlLogOptions, OpenError> {
        let Some(tls) = &mut self.tls else {
            let contradiction =
                "sslmode=disable checks no server, and an authority is to vouch for it";
            return Err(wrong(contradiction.to_owned()));
        };
        tls.trust = Trust::File(file.to_owned());
        self.config.ssl_mode(SslMode::Require);
        Ok(self)
    }

    /// The schema that the tables are in.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The log's name in messages: without the password.
    pub(crate) fn name(&self) -> String {
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or("?");
        format!("the log in schema {} of database {database} in PostgreSQL", self.schema)
    }
}

impl fmt::Debug for PgsqlLogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgsqlLogOptions")
            .field("log", &self.name())
            .field("run_records", &self.run_records)
            .field("run_bytes", &self.run_bytes)
            .field("answer_within", &self.answer_within)
            .finish_non_exhaustive()
    }
}

/// The parameters that the driver does not know, or knows only in part.
#[derive(Default)]
struct Own {
    schema: Option<String>,
    mode: Option<String>,
    root: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Own {
    /// Whether it is one of them.
    fn take(&mut self, name: &str, value: String) -> Result<bool, OpenError> {
        match name {
            "schema" => self.schema = Some(checked_schema(value)?),
            "sslmode" => self.mode = Some(value),
            "sslrootcert" => self.root = Some(value.into()),
            "sslcert" => self.certificate = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            // A log is never on anything else.
            "target_session_attrs" if matches!(&*value, "read-write" | "primary" | "any") => {}
            "target_session_attrs" => {
                return Err(wrong(format!(
                    "target_session_attrs={value}: a log needs a primary (read-write)"
                )));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn tls(&self, config: &mut Config) -> Result<Option<ClientFiles>, OpenError> {
        let mode = self.mode.as_deref().unwrap_or("prefer");
        let trust = match (mode, &self.root) {
            ("disable", None) => {
                config.ssl_mode(SslMode::Disable);
                return Ok(None);
            }
            ("prefer", None) => {
                config.ssl_mode(SslMode::Prefer);
                Trust::Anybody
            }
            ("require", None) => Trust::Anybody,
            ("verify-full", None) => Trust::Public,
            ("verify-full", Some(path)) => Trust::File(path.clone()),
            ("disable" | "prefer" | "require", Some(_)) => {
                return Err(wrong(format!(
                    "sslrootcert is looked at with sslmode=verify-full only, not with {mode}"
                )));
            }
            _ => {
                return Err(wrong(format!(
                    "sslmode={mode} is none of disable, prefer, require, verify-full"
                )));
            }
        };
        if mode != "prefer" {
            config.ssl_mode(SslMode::Require);
        }
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: certificate.clone(), key: key.clone() })
            }
            (None, None) => None,
            _ => return Err(wrong("sslcert and sslkey belong together".to_owned())),
        };
        Ok(Some(ClientFiles { trust, identity }))
    }
}

/// The name goes into statements as it is.
fn checked_schema(name: String) -> Result<String, OpenError> {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let ok = name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(letters)
        && name.bytes().all(|byte| letters(byte) || byte.is_ascii_digit())
        && !name.starts_with("pg_");
    if ok {
        return Ok(name);
    }
    Err(wrong(format!("schema {name:?}: only small letters, digits and underscores, at most 63")))
}

fn wrong(reason: String) -> OpenError {
    OpenError::Url(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        PgsqlLogOptions::from_url(url).unwrap_err().to_string()
    }

    #[test]
    fn a_url_names_hosts_schema_and_encryption() {
        let url = "postgres://u:p@a:1,b:2/d?schema=jobs_2&sslmode=verify-full&sslrootcert=%2Fca.pem\
                   &target_session_attrs=read-write&keepalives=1";
        let options = PgsqlLogOptions::from_url(url).unwrap();
        assert_eq!(options.schema, "jobs_2");
        assert_eq!(options.config.get_ports(), [1, 2]);
        assert_eq!(options.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(options.tls.unwrap().trust, Trust::File("/ca.pem".into()));
        let plain = PgsqlLogOptions::from_url("postgres://u@h/d").unwrap();
        assert_eq!((&*plain.schema, plain.config.get_ssl_mode()), ("spindle", SslMode::Prefer));
    }

    #[test]
    fn password_and_authority_may_be_named_outside_the_url() {
        let options = |url: &str| PgsqlLogOptions::from_url(url).unwrap();
        let authority = Path::new("/ca.pem");
        let given = options("postgres://u@h/d").with_password("secret");
        let given = given.with_authority(authority).unwrap();
        assert_eq!(given.config.get_password(), Some(&b"secret"[..]));
        assert_eq!(given.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(given.tls.unwrap().trust, Trust::File("/ca.pem".into()));
        let off = options("postgres://u@h/d?sslmode=disable").with_authority(authority);
        assert!(off.unwrap_err().to_string().contains("sslmode=disable"));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_the_password() {
        for (url, part) in [
            ("postgres://u:secret@h/d?schema=A", "small letters"),
            ("postgres://u:secret@h/d?schema=pg_x", "small letters"),
            ("postgres://u:secret@h/d?sslmode=verify-ca", "verify-full"),
            ("postgres://u:secret@h/d?sslmode=require&sslrootcert=x", "sslrootcert"),
            ("postgres://u:secret@h/d?target_session_attrs=read-only", "read-write"),
            ("postgres://u:secret@h/d?sslcert=x", "sslkey"),
            ("postgres://u:secret@h/d?colour=red", "colour"),
            ("postgres:///d", "host:port"),
        ] {
            let refusal = refusal(url);
            assert!(refusal.contains(part) && !refusal.contains("secret"), "{url}: {refusal}");
        }
    }
}
