//! Spindle at the shell: `spindle serve` is the server, the other commands are for people.
//!
//! - `access`: authentication and request rates of a running server's clients
//! - `backup`: copies of data folders
//! - `cli`: the command line
//! - `config`: the server's settings, one table of them
//! - `demo`: server and clients of every protocol in one command
//! - `doctor`: what is wrong with settings, folder, disk and machine
//! - `http`, `jobd_master`: the HTTP door of a running server, and its jobd master
//! - `logging`: what the server says on standard error
//! - `node`: a server that is one of several, and follows or leads; `shared_log` opens their log
//! - `serve`: puts log, engine, doors and TCP server together, and ends them in order
//! - `starts`: one line of the log for each part that has begun
//! - `policies`: the policies that each door declares for its jobs
//! - `tls`: the server's certificate, and which door uses it how
//! - `token`: makes tokens, and says what is in a tokens file
//! - `top`: the server live in a terminal
//! - `traces`: where traces go
//! - `verify`: reads a data folder
//! - `webhooks`: starts the webhooks that are set
//! - `client`: the commands that talk to a server, through its HTTP door or its Workq door
//! - `exit`, `output`, `quantity`, `signals`: exit codes, what is printed, sizes and durations, how
//!   the process ends
//! - `queue_name`: queues' names, as they are typed and printed

mod access;
mod backup;
mod budgets;
mod cli;
mod client;
mod config;
mod demo;
mod descriptors;
mod doctor;
mod exit;
mod http;
mod jobd_master;
mod listeners;
mod logging;
mod node;
mod output;
mod policies;
mod quantity;
mod queue_name;
mod serve;
mod shared_log;
mod signals;
mod starts;
mod time_slice;
mod tls;
mod token;
mod top;
mod traces;
mod verify;
mod web;
mod webhooks;

use std::{
    borrow::Cow,
    env,
    io::{self, Write},
    process::{self, ExitCode},
};

use clap::{CommandFactory, Parser};
use spindle_access::hidden;

use crate::{
    cli::{Cli, Command},
    exit::{Code, Failure},
};

fn main() -> ExitCode {
    signals::let_long_files_fail();
    let cli = Cli::try_parse().unwrap_or_else(|error| end_with(&error));
    let code = match run(cli.command) {
        Ok(code) => code,
        Err(error) if exit::is_broken_pipe(&error) => Code::Ok,
        Err(error) => {
            // If this fails, there is nowhere left to report it.
            let _ = writeln!(io::stderr(), "error: {}", hidden(&exit::whole(&error)));
            exit::code_of(&error)
        }
    };
    ExitCode::from(code as u8)
}

/// Ends with help, or with what is wrong with the command line, where somebody may have typed a token.
fn end_with(error: &clap::Error) -> ! {
    if let Cow::Owned(shown) = hidden(&error.render().to_string()) {
        let _ = write!(io::stderr(), "{shown}");
        process::exit(error.exit_code());
    }
    error.exit()
}

fn run(command: Command) -> anyhow::Result<Code> {
    match command {
        Command::Serve(settings) => serve::serve(&resolve(&settings)?),
        Command::Config(args) => {
            let mut out = io::stdout().lock();
            if args.reference {
                config::print_reference(&mut out)?;
                return Ok(Code::Ok);
            }
            let resolved = resolve(&args.settings)?;
            if args.json {
                config::print_json(&resolved, &mut out)?;
            } else {
                config::print_table(&resolved, &mut out)?;
            }
            Ok(Code::Ok)
        }
        Command::Verify(args) => verify::verify(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::Attached(args) => match demo::attached(&args)? {},
        Command::Token(args) => token::token(&args.command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "spindle", &mut script);
            io::stdout().lock().write_all(&script)?;
            Ok(Code::Ok)
        }
        Command::Client(command) => client::run(command),
    }
}

fn resolve(flags: &config::SettingFlags) -> anyhow::Result<config::Resolved> {
    config::resolve(flags, env::vars_os()).map_err(|error| {
        let error = anyhow::Error::from(error);
        Failure::with(Code::Usage, exit::whole(&error))
    })
}
