//! `jobd`'s configuration.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::unistd::{geteuid, gethostname};
use spindle_jobd_master::{server::ListenSettings, wire::Concurrency};
use spindle_tls::client::ClientFiles;

use super::{
    ConfigError, Ini, ListenerFiles, LogConfig, listen, password, seconds,
    tls::{client_files, ssl_files},
};
use crate::{
    launcher::{Launcher, LauncherSettings},
    table::{SpindleServer, SpindleUrl, SqlServer, TableSettings, Tls, TlsMode},
};

const ENV_PREFIX: &str = "launcher.env.";
const DEFAULT_TABLE: &str = "jobs";
/// A commit that was sent to a database is done within this time.
const SECOND_LOOK: Duration = Duration::from_secs(30);

/// Where to find the master, and how to get in.
#[derive(Clone)]
pub struct MasterAddress {
    /// `master_host`.
    pub host: String,
    /// `master_port`.
    pub port: u16,
    /// `master_password`; else `password`.
    pub password: Option<String>,
    /// `master_reconnect_timeout`: the longest pause between tries, 10 s by default.
    pub reconnect_max: Duration,
    /// `master_tls` and its files; none: in plain bytes.
    pub tls: Option<ClientFiles>,
}

impl std::fmt::Debug for MasterAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// What `/etc/jobd.conf` says.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Where to listen; port 7080 by default.
    pub listen: ListenSettings,
    /// How it accepts encrypted connections.
    pub tls: ListenerFiles,
    /// `name`: what the master calls this worker; the machine's name by default.
    pub name: String,
    /// The master to register at, if any.
    pub master: Option<MasterAddress>,
    /// Where logs go.
    pub log: LogConfig,
    /// The job table.
    pub table: TableSettings,
    /// `mysql_fetch_limit` and its like: rows to take at once, 100 by default.
    pub fetch_limit: u32,
    /// `launcher` and what belongs to it.
    pub launcher: Launcher,
    /// `[targets]`, in the file's order.
    pub targets: Vec<(String, Concurrency)>,
    /// `shutdown_timeout`: how long running jobs may go on after SIGTERM, 30 s by default.
    pub shutdown_timeout: Duration,
    /// `state_file`: what this worker must remember to find its own rows again.
    pub state_file: PathBuf,
    /// How long after its first look it looks once more for rows of its earlier process: a claim's
    /// commit may have been on its way when that process was killed. No option; 30 s.
    pub second_look: Duration,
}

impl WorkerConfig {
    /// The options of a file that was read.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_ini(ini: &Ini) -> Result<Self, ConfigError> {
        let listen = listen(ini, 7080)?;
        let name = ini.text("name").map_or_else(machine_name, str::to_owned);
        let (table, fetch_limit) = table(ini, &name)?;
        let state_file = ini.text("state_file").map_or_else(
            || state_folder().join(format!("jobd-{}.state", listen.port)),
            PathBuf::from,
        );
        Ok(Self {
            name,
            tls: ListenerFiles::read(ini)?,
            master: master(ini, listen.access.password.as_ref())?,
            log: LogConfig::read(ini)?,
            table,
            fetch_limit,
            launcher: launcher(ini)?,
            targets: targets(ini)?,
            shutdown_timeout: seconds(ini, "shutdown_timeout", Duration::from_secs(30))?,
            state_file,
            second_look: SECOND_LOOK,
            listen,
        })
    }

    /// Options of the file that mean nothing to a worker, for a warning.
    pub fn unknown_options(ini: &Ini) -> Vec<String> {
        ini.unknown(&["targets"], &[ENV_PREFIX])
    }
}

fn machine_name() -> String {
    gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "jobd".to_owned())
}

/// Where state files and the built-in table are kept by default.
fn state_folder() -> PathBuf {
    if let Some(given) = env::var_os("STATE_DIRECTORY") {
        return PathBuf::from(given);
    }
    if geteuid().is_root() {
        return PathBuf::from("/var/lib/jobd");
    }
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
    let base = env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    base.unwrap_or_default().join("jobd")
}

/// The absolute path, so that a table has one name wherever the worker is started.
fn whole_path(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))
}

fn master(ini: &Ini, own: Option<&String>) -> Result<Option<MasterAddress>, ConfigError> {
    let host = ini.text("master_host").filter(|host| !host.is_empty());
    let port = ini.number("master_port", 1, u16::MAX)?;
    let reconnect_max = seconds(ini, "master_reconnect_timeout", Duration::from_secs(10))?;
    let password = password(ini, "master_password").or_else(|| own.cloned());
    let tls = client_files(ini, "master_")?;
    let (Some(host), Some(port)) = (host, port) else { return Ok(None) };
    Ok(Some(MasterAddress { host: host.to_owned(), port, password, reconnect_max, tls }))
}

fn table(ini: &Ini, worker: &str) -> Result<(TableSettings, u32), ConfigError> {
    let families = ["mysql_", "pgsql_", "sqlite_", "spindle_"];
    let given: Vec<&str> = families.into_iter().filter(|family| ini.has_prefix(family)).collect();
    let family = match given.as_slice() {
        [] => "sqlite_",
        [family] => family,
        [one, other, ..] => {
            return Err(ini.unusable(format!(
                "there are {one}* and {other}* options, and a worker has one job table; \
                 remove those of the other"
            )));
        }
    };
    if family == "spindle_" {
        // Jobs are leased one by one; nothing is fetched.
        return Ok((TableSettings::Spindle(spindle(ini, worker)?), 1));
    }
    let limit = ini.number(&format!("{family}fetch_limit"), 1, 100_000)?.unwrap_or(100);
    let settings = match family {
        "mysql_" => TableSettings::Mysql(sql_server(ini, family, 3306)?),
        "pgsql_" => TableSettings::Pgsql(sql_server(ini, family, 5432)?),
        _ => TableSettings::Sqlite {
            file: ini
                .text("sqlite_file")
                .map_or_else(|| state_folder().join("jobs.db"), whole_path),
            table: ini.text("sqlite_table").unwrap_or(DEFAULT_TABLE).to_owned(),
        },
    };
    Ok((settings, limit))
}

fn spindle(ini: &Ini, worker: &str) -> Result<SpindleServer, ConfigError> {
    let url = ini.required("spindle_url", "write where the server's HTTP door listens")?;
    let token = password(ini, "spindle_token");
    if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(ini.wrong("spindle_token", "letters, digits and signs without spaces"));
    }
    let SpindleUrl { is_https, host, port, path } =
        SpindleUrl::parse(url).map_err(|wanted| ini.wrong("spindle_url", &wanted))?;
    let (roots, identity) = ssl_files(ini, "spindle_")?;
    if !is_https && (roots.is_some() || identity.is_some()) {
        let problem = "spindle_ssl* files mean nothing without https:// in spindle_url";
        return Err(ini.unusable(problem));
    }
    let tls = is_https.then_some(Tls { mode: TlsMode::VerifyFull, roots, identity });
    Ok(SpindleServer { host, port, path, tls, token, worker: worker.to_owned() })
}

fn sql_server(ini: &Ini, family: &str, port: u16) -> Result<SqlServer, ConfigError> {
    let hint = format!("a table on a server needs {family}host, user, password, database, table");
    let text = |key: &str| ini.required(&format!("{family}{key}"), &hint).map(str::to_owned);
    Ok(SqlServer {
        host: text("host")?,
        port: ini.number(&format!("{family}port"), 1, u16::MAX)?.unwrap_or(port),
        user: text("user")?,
        password: text("password")?,
        database: text("database")?,
        table: text("table")?,
        tls: tls(ini, family)?,
    })
}

fn tls(ini: &Ini, family: &str) -> Result<Tls, ConfigError> {
    let key = format!("{family}sslmode");
    let mode = TlsMode::from_word(ini.text(&key).unwrap_or("disable"));
    let mode = mode.ok_or_else(|| ini.wrong(&key, TlsMode::WORDS))?;
    let (roots, identity) = ssl_files(ini, family)?;
    if mode == TlsMode::Disable && (roots.is_some() || identity.is_some()) {
        let problem = format!("{family}ssl* files mean nothing without {family}sslmode");
        return Err(ini.unusable(problem));
    }
    Ok(Tls { mode, roots, identity })
}

fn launcher(ini: &Ini) -> Result<Launcher, ConfigError> {
    let hint = "write what to run for every job, such as launcher = php /srv/launcher.php {id}";
    let template = ini.required("launcher", hint)?.to_owned();
    let environment = ini
        .section("")
        .filter_map(|(key, value)| Some((key.strip_prefix(ENV_PREFIX)?, value)))
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let settings = LauncherSettings {
        template,
        cwd: ini.text("launcher.cwd").filter(|cwd| !cwd.is_empty()).map(PathBuf::from),
        environment: environment.collect(),
        output_bytes_max: ini.number("max_output_buffer", 0, 1 << 30)?.unwrap_or(1 << 20),
        signal_group: ini.flag("launcher.signal_group")?,
    };
    Launcher::new(settings).map_err(|error| ini.unusable(format!("launcher {error}")))
}

fn targets(ini: &Ini) -> Result<Vec<(String, Concurrency)>, ConfigError> {
    const WANTED: &str = "how many jobs may run at the same time, such as 5";
    let target = |(name, value): (&str, &str)| {
        let concurrency = value.parse().ok().and_then(Concurrency::new);
        let concurrency = concurrency.ok_or_else(|| ini.wrong_in("targets", name, WANTED))?;
        Ok((name.to_owned(), concurrency))
    };
    ini.section("targets").map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<WorkerConfig, String> {
        let ini = Ini::parse(Path::new("jobd.conf"), text).unwrap();
        WorkerConfig::from_ini(&ini).map_err(|error| error.to_string())
    }

    const MYSQL: &str = "mysql_host = db\nmysql_port = 3307\nmysql_user = u\nmysql_password = p\n\
        mysql_database = d\nmysql_table = t\n";

    #[test]
    fn a_file_of_the_original_means_what_it_meant() {
        let text = format!(
            "host = 0.0.0.0\nport = 7090\npassword = sesame\nalways_allow_localhost = 1\n\
             master_host = m\nmaster_port = 7081\n{MYSQL}mysql_fetch_limit = 10\n\
             launcher = php /srv/l.php {{id}}\nlauncher.cwd = /srv\nlauncher.env.A = b\n\
             max_output_buffer = 5\n\n[targets]\nlow = 1\n1/high = 10\n"
        );
        let config = config(&text).unwrap();
        assert_eq!((config.listen.host.as_str(), config.listen.port), ("0.0.0.0", 7090));
        assert!(config.listen.access.always_allow_localhost);
        let master = config.master.unwrap();
        assert_eq!((master.host.as_str(), master.port), ("m", 7081));
        assert_eq!(master.password.as_deref(), Some("sesame"));
        assert_eq!(master.reconnect_max, Duration::from_secs(10));
        let TableSettings::Mysql(server) = config.table else { panic!("{:?}", config.table) };
        assert_eq!((server.host.as_str(), server.port, server.table.as_str()), ("db", 3307, "t"));
        assert_eq!(config.fetch_limit, 10);
        let targets: Vec<_> =
            config.targets.iter().map(|(name, limit)| (name.as_str(), limit.value())).collect();
        assert_eq!(targets, [("low", 1), ("1/high", 10)]);
    }

    #[test]
    fn defaults_are_the_specifications() {
        let config = config("launcher = true {id}\n").unwrap();
        assert_eq!((config.listen.host.as_str(), config.listen.port), ("127.0.0.1", 7080));
        assert_eq!(config.fetch_limit, 100);
        assert!(config.master.is_none());
        assert!(matches!(config.table, TableSettings::Sqlite { .. }));
    }

    #[test]
    fn errors_say_what_to_write() {
        for (text, expected) in [
            (
                "",
                "jobd.conf: launcher is missing; write what to run for every job, such as \
                  launcher = php /srv/launcher.php {id}",
            ),
            (
                "launcher = php x\n",
                "jobd.conf: launcher has no {id}; put {id} where the program \
                  expects the id of its job",
            ),
            (
                "launcher = x {id}\n[targets]\nlow = 0\n",
                "jobd.conf:3: low = \"0\": expected how \
                  many jobs may run at the same time, such as 5",
            ),
            (
                "mysql_host = a\nlauncher = x {id}",
                "jobd.conf: mysql_user is missing; a table on a \
                  server needs mysql_host, user, password, database, table",
            ),
            (
                "mysql_host = a\nsqlite_file = b\n",
                "jobd.conf: there are mysql_* and sqlite_* \
                  options, and a worker has one job table; remove those of the other",
            ),
            (
                &format!("{MYSQL}mysql_sslmode = prefer\n"),
                "jobd.conf:7: mysql_sslmode = \"prefer\": expected disable, require or \
                 verify-full",
            ),
            (
                &format!("{MYSQL}mysql_sslrootcert = ca.pem\n"),
                "jobd.conf: mysql_ssl* files mean nothing without mysql_sslmode",
            ),
            (
                &format!("{MYSQL}mysql_sslmode = require\nmysql_sslkey = key.pem\n"),
                "jobd.conf: mysql_sslcert and mysql_sslkey go together; write both",
            ),
            (
                "spindle_url = 127.0.0.1:7420\n",
                "jobd.conf:1: spindle_url = \"127.0.0.1:7420\": expected http:// or https:// in \
                 front of the host, such as http://127.0.0.1:7420",
            ),
            (
                "spindle_url = http://me:secret@a:1\n",
                "jobd.conf:1: spindle_url = \"...\": expected no user and no password in it; \
                 spindle_token is what is sent",
            ),
            (
                "spindle_url = http://a:1\nspindle_sslrootcert = ca.pem\n",
                "jobd.conf: spindle_ssl* files mean nothing without https:// in spindle_url",
            ),
            (
                "spindle_url = https://a:1\nspindle_sslcert = a.pem\n",
                "jobd.conf: spindle_sslcert and spindle_sslkey go together; write both",
            ),
        ] {
            assert_eq!(config(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn a_spindle_server_can_be_the_table_and_its_token_is_never_told() {
        let text = "name = w1\nlauncher = x {id}\nspindle_url = http://[::1]:7420/\n\
                    spindle_token = sesame\n";
        let table = config(text).unwrap().table;
        assert_eq!(format!("{table:?}"), "Spindle(http://[::1]:7420)");
        let TableSettings::Spindle(server) = table else { panic!("{table:?}") };
        assert_eq!((server.token.as_deref(), &*server.worker), (Some("sesame"), "w1"));
        let text = "launcher = x {id}\nspindle_url = https://q.example/a\n\
                    spindle_sslrootcert = /ca.pem\n";
        let TableSettings::Spindle(server) = config(text).unwrap().table else { panic!() };
        let roots = Some("/ca.pem".into());
        let tls = Tls { mode: TlsMode::VerifyFull, roots, identity: None };
        assert_eq!((server.port, server.tls), (443, Some(tls)));
        let wrong = config("spindle_url = http://x:1\nspindle_token = a b\n").unwrap_err();
        assert!(wrong.starts_with("jobd.conf:2: spindle_token = \"...\""), "{wrong}");
    }

    #[test]
    fn a_master_needs_host_and_port() {
        for text in
            ["master_host = m\n", "master_port = 7081\n", "master_host =\nmaster_port = 1\n"]
        {
            let config = config(&format!("launcher = x {{id}}\n{text}")).unwrap();
            assert!(config.master.is_none(), "{text}");
        }
    }
}
