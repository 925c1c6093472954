//! `jobctl` from its first word to its exit code.

use std::{
    env,
    io::{self, IsTerminal, Write},
    ops::RangeInclusive,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Parser;

use super::{
    client::{Address, AskError, Client},
    code::Code,
    command::{Command, parse},
    flags::Flags,
    password, print,
};
use crate::{
    config::{ConfigError, CtlConfig, Ini},
    logging,
};

/// What `--timeout` takes, besides 0 for no end.
const TIMEOUT_S: RangeInclusive<f64> = 0.1..=86_400.0;

/// Everything that is decided before the daemon is asked.
struct Plan {
    command: Command,
    address: Address,
    json: bool,
    watch: Option<Duration>,
}

/// The whole program.
pub fn main() -> ExitCode {
    let flags = Flags::parse();
    let code = match plan(flags) {
        Ok(plan) => ask(&plan),
        Err(problem) => {
            complain(&problem);
            Code::Usage
        }
    };
    ExitCode::from(code as u8)
}

/// Says what went wrong, in the form of the original.
fn complain(problem: &str) {
    let mut stderr = io::stderr();
    let (on, off) = if stderr.is_terminal() { ("\x1b[91m", "\x1b[39m") } else { ("", "") };
    // A standard error that is gone leaves nowhere to report it.
    let _ = writeln!(stderr, "{on}ERROR [jobctl]{off} {problem}");
}

fn read_config(flags: &Flags) -> Result<Ini, ConfigError> {
    let default = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".jobctl.conf"));
    match (&flags.config, default()) {
        (Some(path), _) => Ini::read(path),
        (None, Some(path)) if path.exists() => Ini::read(&path),
        (None, path) => Ini::parse(&path.unwrap_or_default(), ""),
    }
}

/// The flags of TLS are the options of the file under other names.
fn set_tls(flags: &Flags, ini: &mut Ini) {
    if flags.tls {
        ini.set_option("tls=1");
    }
    let files = [("sslrootcert", &flags.ca_file), ("sslcert", &flags.cert), ("sslkey", &flags.key)];
    for (option, file) in files {
        if let Some(path) = file {
            ini.set_option(&format!("{option}={}", path.display()));
        }
    }
}

fn plan(flags: Flags) -> Result<Plan, String> {
    let mut ini = read_config(&flags).map_err(|error| error.to_string())?;
    if let Some(level) = &flags.log_level {
        ini.set_option(&format!("log_level={level}"));
    }
    set_tls(&flags, &mut ini);
    let config = CtlConfig::from_ini(&ini).map_err(|error| error.to_string())?;
    let is_master = flags.master || config.master;
    let command = parse(&flags.words, is_master)?;
    let watch = match flags.watch {
        None => None,
        Some(_) if !command.is_question() => {
            return Err(format!("--watch would repeat '{}'; it is for questions.", command.kind));
        }
        Some(seconds) if (0.1..=86_400.0).contains(&seconds) => {
            Some(Duration::from_secs_f32(seconds))
        }
        Some(_) => return Err("--watch takes seconds, from 0.1 to 86400.".to_owned()),
    };
    let patience = match flags.timeout {
        None => config.timeout,
        Some(seconds) if seconds == 0.0 || TIMEOUT_S.contains(&seconds) => {
            Duration::from_secs_f64(seconds)
        }
        Some(_) => return Err("--timeout takes seconds, from 0.1 to 86400, or 0.".to_owned()),
    };
    let password = match flags.password {
        None => config.password,
        Some(given) if given.is_empty() => {
            Some(password::ask().map_err(|error| format!("Cannot read the password: {error}"))?)
        }
        given => given,
    };
    logging::begin_on_stderr(config.log_level);
    Ok(Plan {
        command,
        address: Address {
            host: flags.host.or(config.host).unwrap_or_else(|| "127.0.0.1".to_owned()),
            port: flags.port.or(config.port).unwrap_or(if is_master { 7081 } else { 7080 }),
            is_master,
            password,
            tls: config.tls,
            patience: Some(patience).filter(|patience| !patience.is_zero()),
        },
        json: flags.json,
        watch,
    })
}

fn ask(plan: &Plan) -> Code {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("Cannot start: {error}"));
            return Code::Error;
        }
    };
    let code = runtime.block_on(async {
        match converse(plan).await {
            Ok(code) => code,
            Err(error) => {
                complain(&error.to_string());
                Code::Error
            }
        }
    });
    // Does not wait for a host name that is still being looked up.
    runtime.shutdown_background();
    code
}

async fn converse(plan: &Plan) -> Result<Code, AskError> {
    let client = Client::connect(&plan.address).await?;
    loop {
        let answer = client.ask(&plan.command).await?;
        let shown = if plan.json {
            print::code_of(plan.command.show, &answer).map(|code| (format!("{answer}\n"), code))
        } else {
            print::shown(plan.command.show, &answer)
        };
        let (text, code) = match shown {
            Ok(shown) => shown,
            Err(error) => {
                complain(&format!("The answer cannot be read: {error}"));
                return Ok(Code::Error);
            }
        };
        if !write(&text, plan.watch.is_some() && !plan.json) {
            return Ok(Code::Error);
        }
        let Some(pause) = plan.watch else { return Ok(code) };
        tokio::time::sleep(pause).await;
    }
}

/// Prints to standard output; when watching on a terminal, in place of what was there.
fn write(text: &str, is_watched: bool) -> bool {
    let mut stdout = io::stdout().lock();
    let clear = if is_watched && stdout.is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    write!(stdout, "{clear}{text}").and_then(|()| stdout.flush()).is_ok()
}
