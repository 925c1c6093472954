//! Where the log is, and how to log in.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use spindle_log::Opening;
use spindle_tls::client::{ClientFiles, Identity, Trust};

use crate::connect::addresses;
use crate::error::OpenError;

/// The highest [`NatsLogOptions::in_flight_max`]. Every writer of a log relies on it, so a larger
/// one is a new format of the log; see `append.rs`.
pub const IN_FLIGHT_MAX: usize = 16;

/// What a log is opened with. The defaults are those of a cluster of three servers.
#[derive(Clone, Debug)]
pub struct NatsLogOptions {
    /// Addresses of servers of one cluster: `nats://HOST:PORT`, or `tls://HOST:PORT` when connections
    /// must be encrypted. Others of the cluster are found through them.
    pub servers: Vec<String>,
    /// The stream that is the log. Its subjects begin with this name, too.
    pub stream: String,
    /// How many servers must keep the stream: 1, 3 or 5; 3 survive the loss of one.
    pub replicas: usize,
    /// Who comes in.
    pub login: Login,
    /// The authorities that must vouch for the servers, and the certificate to show to them.
    /// Without it, the authorities that browsers trust, and no certificate.
    pub tls: ClientFiles,
    /// How to find out that the servers sync what they acknowledge.
    pub sync: SyncCheck,
    /// How many records are on their way at once, at most [`IN_FLIGHT_MAX`].
    pub in_flight_max: usize,
    /// A run, the piece of the log that a trim drops, is closed once it has this many bytes.
    pub run_bytes: u64,
    /// How long to look for servers, and for a leader among them, before opening fails.
    pub open_timeout: Duration,
    /// How long a server may take to answer before the answer counts as lost. Shorter than the
    /// election of a new leader, which takes 4 to 9 s: the record is offered again until then.
    pub answer_timeout: Duration,
    /// The name of this process in the lists of the servers.
    pub client_name: String,
    /// What the log is opened for.
    pub opening: Opening,
}

/// Who comes in.
#[derive(Clone, Default)]
pub enum Login {
    /// No login, or the user that the client certificate names.
    #[default]
    None,
    /// A user and their password.
    User {
        /// The user's name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
    /// A file with a JWT and its key, as `nsc generate creds` writes it.
    Credentials(PathBuf),
}

/// How to find out that the servers run with `sync_interval: always`. A user of NATS cannot see
/// that; the servers' monitoring and the system account can.
#[derive(Clone, Debug)]
pub enum SyncCheck {
    /// Ask these monitoring addresses, one for each server: `http://HOST:8222`.
    Monitoring(Vec<String>),
    /// Ask all servers through the system account, as this user of it.
    SystemAccount(Login),
    /// Do not ask: what is acknowledged may be lost when machines fail at the same time.
    Os,
}

impl Default for NatsLogOptions {
    fn default() -> Self {
        Self {
            servers: vec!["nats://127.0.0.1:4222".to_owned()],
            stream: "spindle".to_owned(),
            replicas: 3,
            login: Login::None,
            tls: ClientFiles::default(),
            sync: SyncCheck::Monitoring(Vec::new()),
            in_flight_max: 8,
            run_bytes: 16 * 1024 * 1024,
            open_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(2),
            client_name: "spindle".to_owned(),
            opening: Opening::Node,
        }
    }
}

impl NatsLogOptions {
    /// Reads `nats://user:password@host:port,host:port/stream?parameter=value&...`, or the same with
    /// `tls://` when connections must be encrypted. Without a port it is 4222, without a stream
    /// `spindle`.
    ///
    /// | parameter | what it is |
    /// |---|---|
    /// | `replicas` | on how many servers the stream has to be: 1, 3 (the default) or 5 |
    /// | `monitoring` | monitoring addresses of all servers, separated by commas: `http://host:8222,...` |
    /// | `system_user`, `system_password` | a login of the system account, which is asked instead |
    /// | `system_creds` | the same as a file of credentials |
    /// | `token`, `creds` | a token, or a file of credentials, to log in with instead of user and password |
    /// | `tlsca` | the file of the authority that vouches for the servers; the connection is encrypted then |
    /// | `tlscert`, `tlskey` | the files of the certificate to show to the servers |
    ///
    /// # Errors
    /// [`OpenError::Url`]. The message does not repeat passwords.
    pub fn from_url(url: &str) -> Result<NatsLogOptions, OpenError> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        if !matches!(scheme, "nats" | "tls") {
            return Err(wrong("it begins with nats:// or tls://"));
        }
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, stream) = base.split_once('/').unwrap_or((base, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        if hosts.split(',').any(|host| host.is_empty() || host.starts_with(':')) {
            return Err(wrong("a server of it has no address"));
        }
        let mut options = NatsLogOptions {
            servers: hosts.split(',').map(|host| format!("{scheme}://{host}")).collect(),
            ..NatsLogOptions::default()
        };
        if !stream.is_empty() {
            options.stream = decoded("the stream", stream)?;
        }
        let mut given = Given::default();
        for piece in query.split('&').filter(|piece| !piece.is_empty()) {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            given.take(name, decoded(name, value)?)?;
        }
        given.apply(user, &mut options)?;
        addresses(&options.servers).map_err(|error| wrong(error.to_string()))?;
        options.check().map_err(|error| wrong(error.to_string()))?;
        Ok(options)
    }

    /// Selects one of several logs beside each other: the first is the stream that the URL names, the others are
    /// streams whose names end in `-1`, `-2` and so on.
    #[must_use]
    pub fn of_shard(mut self, shard: u8) -> NatsLogOptions {
        if shard > 0 {
            self.stream = format!("{}-{shard}", self.stream);
        }
        self
    }

    /// Logs in with this password, whatever the URL says; where it names no user, with this token.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> NatsLogOptions {
        self.login = match self.login {
            Login::User { user, .. } => Login::User { user, password: password.to_owned() },
            Login::None | Login::Token(_) => Login::Token(password.to_owned()),
            Login::Credentials(file) => Login::Credentials(file),
        };
        self
    }

    /// Talks only to servers that the authorities in this file (PEM) vouch for, as with `tlsca`.
    #[must_use]
    pub fn with_authority(mut self, file: &Path) -> NatsLogOptions {
        self.tls.trust = Trust::File(file.to_owned());
        for server in &mut self.servers {
            if let Some(host) = server.strip_prefix("nats://") {
                *server = format!("tls://{host}");
            }
        }
        self
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.stream.is_empty() || !self.stream.chars().all(is_plain) {
            return Err(OpenError::Option(format!(
                "`{}` cannot be the name of a stream: letters, digits, `-` and `_` can be in it",
                self.stream
            )));
        }
        if ![1, 3, 5].contains(&self.replicas) {
            let replicas = self.replicas;
            return Err(OpenError::Option(format!(
                "a stream has 1, 3 or 5 replicas, not {replicas}"
            )));
        }
        if !(1..=IN_FLIGHT_MAX).contains(&self.in_flight_max) {
            let max = self.in_flight_max;
            return Err(OpenError::Option(format!(
                "between 1 and {IN_FLIGHT_MAX} records are in flight, not {max}"
            )));
        }
        Ok(())
    }
}

/// Parameters of a URL.
#[derive(Default)]
struct Given {
    replicas: Option<usize>,
    monitoring: Vec<String>,
    token: Option<String>,
    credentials: Option<PathBuf>,
    system_user: Option<String>,
    system_password: Option<String>,
    system_credentials: Option<PathBuf>,
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Given {
    fn take(&mut self, name: &str, value: String) -> Result<(), OpenError> {
        match name {
            "replicas" => {
                let number = value.parse();
                let number = number.map_err(|_| wrong(format!("replicas={value} is no number")))?;
                self.replicas = Some(number);
            }
            "monitoring" => self.monitoring = value.split(',').map(str::to_owned).collect(),
            "token" => self.token = Some(value),
            "creds" => self.credentials = Some(value.into()),
            "system_user" => self.system_user = Some(value),
            "system_password" => self.system_password = Some(value),
            "system_creds" => self.system_credentials = Some(value.into()),
            "tlsca" => self.authority = Some(value.into()),
            "tlscert" => self.certificate = Some(value.into()),
            "tlskey" => self.key = Some(value.into()),
            _ => return Err(wrong(format!("`{name}` is no parameter of it"))),
        }
        Ok(())
    }

    fn apply(self, user: Option<&str>, options: &mut NatsLogOptions) -> Result<(), OpenError> {
        options.replicas = self.replicas.unwrap_or(options.replicas);
        options.login = match (user, self.token, self.credentials) {
            (None, None, None) => Login::None,
            (Some(user), None, None) => {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                Login::User {
                    user: decoded("the user", user)?,
                    password: decoded("the password", password)?,
                }
            }
            (None, Some(token), None) => Login::Token(token),
            (None, None, Some(file)) => Login::Credentials(file),
            _ => return Err(wrong("it has more than one of a user, `token` and `creds`")),
        };
        let system = match (self.system_user, self.system_password, self.system_credentials) {
            (None, None, None) => None,
            (Some(user), Some(password), None) => Some(Login::User { user, password }),
            (None, None, Some(file)) => Some(Login::Credentials(file)),
            _ => {
                return Err(wrong(
                    "of the system account it has `system_user` and `system_password`, or \
                     `system_creds`",
                ));
            }
        };
        options.sync = match (system, self.monitoring) {
            (None, addresses) => SyncCheck::Monitoring(addresses),
            (Some(login), addresses) if addresses.is_empty() => SyncCheck::SystemAccount(login),
            _ => return Err(wrong("it has `monitoring` and the system account: one is asked")),
        };
        options.tls.identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => return Err(wrong("`tlscert` and `tlskey` belong together")),
        };
        if let Some(file) = self.authority {
            *options = std::mem::take(options).with_authority(&file);
        }
        Ok(())
    }
}

fn decoded(name: &str, value: &str) -> Result<String, OpenError> {
    let text = percent_decode_str(value).decode_utf8();
    text.map(std::borrow::Cow::into_owned).map_err(|_| wrong(format!("{name} is not UTF-8")))
}

fn wrong(reason: impl Into<String>) -> OpenError {
    OpenError::Url(reason.into())
}

impl fmt::Debug for Login {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Login::None => f.write_str("None"),
            Login::User { user, .. } => write!(f, "User({user})"),
            Login::Token(_) => f.write_str("Token"),
            Login::Credentials(path) => write!(f, "Credentials({})", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_does_not_print_its_secret() {
        let user = Login::User { user: "spindle".to_owned(), password: "hush".to_owned() };
        assert_eq!(
            format!("{user:?} {:?}", Login::Token("hush".to_owned())),
            "User(spindle) Token"
        );
    }

    #[test]
    fn options_that_cannot_be_are_refused() {
        let option = |change: fn(&mut NatsLogOptions)| {
            let mut options = NatsLogOptions::default();
            change(&mut options);
            options.check().expect_err("refused").to_string()
        };
        assert!(option(|o| o.stream = "a.b".to_owned()).contains("name of a stream"));
        assert!(option(|o| o.replicas = 2).contains("1, 3 or 5"));
        assert!(option(|o| o.in_flight_max = 17).contains("between 1 and 16"));
        NatsLogOptions::default().check().expect("can be");
    }

    #[test]
    fn a_url_names_servers_stream_login_and_checks() {
        let parsed = |url: &str| NatsLogOptions::from_url(url).expect(url);
        let plain = parsed("nats://h");
        assert_eq!((&*plain.servers, &*plain.stream), (&["nats://h".to_owned()][..], "spindle"));
        assert!(matches!(plain.login, Login::None));
        let full = parsed(
            "nats://a%40b:p%3Aq@one:4222,two:4223/jobs_2?replicas=5&tlsca=%2Fca.pem&tlscert=c&tlskey=k\
             &monitoring=http://one:8222,http://two:8222",
        );
        assert_eq!(full.servers, ["tls://one:4222", "tls://two:4223"]);
        assert_eq!((&*full.stream, full.replicas), ("jobs_2", 5));
        assert_eq!(full.tls.trust, Trust::File("/ca.pem".into()));
        assert!(full.tls.identity.is_some());
        let Login::User { user, password } = full.login else { panic!("no user") };
        assert_eq!((&*user, &*password), ("a@b", "p:q"));
        let SyncCheck::Monitoring(addresses) = full.sync else { panic!("not monitoring") };
        assert_eq!(addresses, ["http://one:8222", "http://two:8222"]);
        let system = parsed("tls://h/s?token=t&system_user=u&system_password=p");
        assert!(matches!(system.login, Login::Token(token) if token == "t"));
        assert!(matches!(system.sync, SyncCheck::SystemAccount(Login::User { .. })));
    }

    #[test]
    fn a_password_from_elsewhere_is_that_of_the_user_or_a_token() {
        let login =
            |url: &str| NatsLogOptions::from_url(url).expect(url).with_password("given").login;
        assert!(
            matches!(login("nats://u@h"), Login::User { user, password } if user == "u" && password == "given")
        );
        assert!(matches!(login("nats://h"), Login::Token(token) if token == "given"));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_the_password() {
        for (url, part) in [
            ("http://u:secret@h/s", "nats:// or tls://"),
            ("nats://u:secret@h/a.b", "name of a stream"),
            ("nats://u:secret@h/s?replicas=2", "1, 3 or 5"),
            ("nats://u:secret@h/s?replicas=two", "no number"),
            ("nats://u:secret@h/s?token=x", "more than one"),
            ("nats://u:secret@h/s?tlscert=x", "tlskey"),
            ("nats://u:secret@h/s?system_user=x", "system_password"),
            ("nats://u:secret@h/s?monitoring=http://h&system_creds=x", "one is asked"),
            ("nats://u:secret@h/s?colour=red", "colour"),
            ("nats://u:secret@/s", "no address"),
        ] {
            let refusal = NatsLogOptions::from_url(url).expect_err(url).to_string();
            assert!(refusal.contains(part) && !refusal.contains("secret"), "{url}: {refusal}");
        }
    }
}
