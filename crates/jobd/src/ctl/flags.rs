//! The command line of `jobctl`.

use std::path::PathBuf;

use clap::Parser;

const COMMANDS: &str = "\
Commands for a worker:
  list-targets                        targets, their limits and lengths
  status                              all of that, memory, and what needs a person
  memory-usage                        memory of the daemon
  poll TARGET...                      look for new jobs
  pause [TARGET...]                   start no more jobs (of all targets)
  continue [TARGET...]                go on (with all targets)
  add-target TARGET CONCURRENCY       serve one more target
  remove-target TARGET                serve it no more
  set-target-concurrency TARGET N     change how many of its jobs may run at once
  run-manual ID...                    run these jobs, wait for them, print their results
  send-signal SIGNAL ID...            send a signal (TERM, SIGTERM, 15) to running jobs

Commands for a master (--master):
  list-workers                        workers and their targets
  status                              the same, and memory
  memory-usage                        memory of the daemon
  poke TARGET...                      tell the workers of these targets to look for jobs
  pause [TARGET...]                   as above, on all workers that serve them (or all)
  continue [TARGET...]
  run-manual TARGET ID...             run these jobs on workers of this target
  send-signal SIGNAL TARGET ID...     send a signal to running jobs of this target

Exit codes: 0 done, 1 error or no answer in time, 2 wrong use, 5 a job of run-manual failed or was not run.";

/// Asks jobd or jobd-master something.
#[derive(Debug, Parser)]
#[command(name = "jobctl", version, after_help = COMMANDS, max_term_width = 100)]
pub(super) struct Flags {
    /// Talk to a master
    #[arg(long)]
    pub(super) master: bool,
    /// Where it listens; 127.0.0.1 by default
    #[arg(long)]
    pub(super) host: Option<String>,
    /// Its port; 7080 by default, of a master 7081
    #[arg(long)]
    pub(super) port: Option<u16>,
    /// Ask for the password, or take it from here
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) password: Option<String>,
    /// Encrypt the connection
    #[arg(long)]
    pub(super) tls: bool,
    /// Trust only who this PEM file vouches for; by default those that browsers trust
    #[arg(long, value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
    /// A certificate to show; PEM
    #[arg(long, value_name = "FILE")]
    pub(super) cert: Option<PathBuf>,
    /// The certificate's key; PEM
    #[arg(long, value_name = "FILE")]
    pub(super) key: Option<PathBuf>,
    /// Configuration file; ~/.jobctl.conf by default, if it is there
    #[arg(long)]
    pub(super) config: Option<PathBuf>,
    /// Give up when there is no connection or no answer after so many seconds (10; 0: never).
    /// run-manual waits for its jobs as long as the daemon answers pings within this time
    #[arg(long, value_name = "SECONDS")]
    pub(super) timeout: Option<f64>,
    /// Print the answer as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Ask again every so many seconds (2)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "2",
        value_name = "SECONDS")]
    pub(super) watch: Option<f32>,
    /// trace, debug, info, warn or error; warn by default
    #[arg(long)]
    pub(super) log_level: Option<String>,
    /// What to ask, and about what; see below
    #[arg(required = true, value_name = "COMMAND [ARGUMENT]...")]
    pub(super) words: Vec<String>,
}
