//! The binary, run as people run it.
//!
//! - `access`: tokens and authentication
//! - `across`: progress, output, cancels and turns for jobs of all doors
//! - `backup`, `export`: copies of folders and of jobs, with kills
//! - `batches`: jobs that belong together
//! - `demo`: a server that is killed, and jobs through every door
//! - `doctor`: what it finds
//! - `formats`: folders that releases before this one made
//! - `usage`: command lines that are refused, settings, completions
//! - `command_lines`: what the log says of commands, and never of what they carry
//! - `clients`, `work`: the commands for people, against a server that each test scripts
//! - `connections`: limits on them, and floods
//! - `fake_workq`: that server
//! - `examples`: the programs in examples/
//! - `http`: the server's HTTP door
//! - `limits`: settings of limits reach what they limit
//! - `logging`: what the server says
//! - `logs`: what a job's workers write
//! - `lost`: `spindle work` and jobs that are cancelled, lost, or fail
//! - `memory`: the memory that floods make the server hold
//! - `native`: the commands for people through the native API
//! - `packages`: what is in deploy/, and the page of operations
//! - `pages`: the examples of docs/commands.md; `readme`: those of the README
//! - `prose`: lines and links of all pages
//! - `people`: output and questions for people, some of them on a `terminal`
//! - `queue`: tries, and the settings of queues
//! - `web`: the URLs that commands take; `proxy`: TLS and a path in front of a server
//! - `secrets`: tokens and passwords, which nothing says
//! - `security`: the examples of docs/security.md
//! - `serve`: the server itself, and a session with it
//! - `tls`: TLS of all doors
//! - `top`: the server live on a terminal
//! - `trace`: the trace a job belongs to
//! - `webhook`: reports of dead jobs
//! - `verify`: what `spindle verify` says of folders that servers leave

#[cfg(test)]
mod access;
#[cfg(test)]
mod across;
#[cfg(test)]
mod backup;
#[cfg(test)]
mod batches;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod command_lines;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod cron;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod export;
#[cfg(test)]
mod fake_workq;
#[cfg(test)]
mod formats;
#[cfg(test)]
mod http;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod logging;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod lost;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod native;
#[cfg(test)]
mod packages;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod people;
#[cfg(test)]
mod prose;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod security;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod take_over;
#[cfg(test)]
mod taken;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod top;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod verify;
#[cfg(test)]
mod web;
#[cfg(test)]
mod webhook;
#[cfg(test)]
mod work;
