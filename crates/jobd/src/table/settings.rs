//! Where a job table is, as the worker's configuration tells it.

use std::path::PathBuf;

/// The kinds of database that can hold a job table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// MySQL or MariaDB.
    Mysql,
    /// PostgreSQL.
    Pgsql,
    /// A SQLite file.
    Sqlite,
}

/// Which table, where, and how to get in. One of the families of options `mysql_*`, `pgsql_*`,
/// `sqlite_*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableSettings {
    /// `mysql_host`, `mysql_port`, `mysql_user`, `mysql_password`, `mysql_database`,
    /// `mysql_table`.
    Mysql(SqlServer),
    /// `pgsql_host` and so on.
    Pgsql(SqlServer),
    /// `sqlite_file`, `sqlite_table`. A file that does not exist is created with the
    /// specification's table in it.
    Sqlite {
        /// Path of the database file.
        file: PathBuf,
        /// Name of the table.
        table: String,
    },
    /// `spindle_url`: the queues of a Spindle server, a target being a queue.
    Spindle(SpindleServer),
}

/// A Spindle server's native API.
#[derive(Clone, PartialEq, Eq)]
pub struct SpindleServer {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// What stands in the URL behind the port, without a slash at its end.
    pub path: String,
    /// `spindle_token`: sent as a bearer token.
    pub token: Option<String>,
    /// What the server is told about who works.
    pub worker: String,
}

impl SpindleServer {
    /// The parts of `http://HOST[:PORT][/PATH]`, or what is wrong with it.
    ///
    /// # Errors
    /// What should stand there instead.
    pub fn parse(url: &str, token: Option<String>, worker: &str) -> Result<Self, &'static str> {
        const WANTED: &str = "the URL of a Spindle server, such as http://127.0.0.1:7420";
        if url.starts_with("https:") {
            return Err("a URL that begins with http:. TLS to a Spindle server is not supported \
                        yet: let a tunnel on this machine speak it (ssh -L, stunnel) and write \
                        the tunnel's address, such as http://127.0.0.1:7420");
        }
        let rest = url.strip_prefix("http://").ok_or(WANTED)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // An IPv6 address stands in brackets, and has colons of its own.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (authority, Some(80)),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let (Some(port), false) = (port, host.is_empty()) else { return Err(WANTED) };
        if !is_plain(host) || !is_plain(path) || host.contains('@') || path.contains(['?', '#']) {
            return Err(WANTED);
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            path: path.trim_end_matches('/').to_owned(),
            token,
            worker: worker.to_owned(),
        })
    }

    /// `HOST:PORT` as a URL and the `Host` header write it.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl std::fmt::Debug for SpindleServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

/// A table on a database server.
#[derive(Clone, PartialEq, Eq)]
pub struct SqlServer {
    /// Host name, address, or (beginning with `/`) the path of a socket.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Database user.
    pub user: String,
    /// Its password; may be empty.
    pub password: String,
    /// Name of the database.
    pub database: String,
    /// Name of the table.
    pub table: String,
    /// How the connection is encrypted.
    pub tls: Tls,
}

/// How a connection to a database is encrypted: `mysql_sslmode`, `pgsql_sslmode` and what belongs
/// to them, by the names that PostgreSQL's own clients use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// `sslmode`.
    pub mode: TlsMode,
    /// `sslrootcert`: who may have signed the server's certificate, as a PEM file; else the
    /// authorities that browsers trust.
    pub roots: Option<PathBuf>,
    /// `sslcert` and `sslkey`: a certificate of ours and its key, as PEM files.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// How much a connection is to be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Plain text.
    #[default]
    Disable,
    /// Encrypted, to whoever answers.
    Require,
    /// Encrypted, to a server whose certificate an authority has signed for the host that was asked
    /// for.
    VerifyFull,
}

impl TlsMode {
    /// The words of `sslmode`.
    pub const WORDS: &str = "disable, require or verify-full";

    /// The mode of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "disable" => Self::Disable,
            "require" => Self::Require,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }
}

impl std::fmt::Debug for SqlServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServer")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("user", &self.user)
            .field("database", &self.database)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let parts = |url: &str| {
            SpindleServer::parse(url, None, "w")
                .map(|server| (server.host, server.port, server.path))
        };
        let is = |host: &str, port, path: &str| Ok((host.to_owned(), port, path.to_owned()));
        assert_eq!(parts("http://127.0.0.1:7420"), is("127.0.0.1", 7420, ""));
        assert_eq!(parts("http://[::1]:7420/"), is("::1", 7420, ""));
        assert_eq!(parts("http://[::1]"), is("::1", 80, ""));
        assert_eq!(parts("http://queue.example/spindle/"), is("queue.example", 80, "/spindle"));
        for wrong in ["", "127.0.0.1:7420", "http://", "http://:1", "http://a:b", "http://a b"] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
        for wrong in ["http://u:p@a:1", "http://a/?x", "http://a:70000"] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
        assert!(parts("https://a:1").unwrap_err().contains("let a tunnel on this machine"));
    }

    #[test]
    fn an_address_goes_back_into_the_header_it_came_from() {
        let server = SpindleServer::parse("http://[::1]:7420", Some("t".into()), "w").unwrap();
        assert_eq!(server.authority(), "[::1]:7420");
        assert_eq!(format!("{server:?}"), "http://[::1]:7420");
    }
}
