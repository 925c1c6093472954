//! Where a job table is, from the worker's configuration.

use std::path::PathBuf;

use super::spindle::SpindleServer;

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
    /// Encrypted, without a look at the certificate.
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
