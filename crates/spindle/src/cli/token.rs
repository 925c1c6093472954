//! `spindle token`: tokens and the file that the server knows them by.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// `spindle token`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// What is done with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Print a new token, this once, and its entry for the server's tokens file
    New(NewTokenArgs),
    /// Say whether a tokens file can be used, and list its entries
    Check(CheckTokensArgs),
}

/// `spindle token new`.
#[derive(Debug, Args)]
pub struct NewTokenArgs {
    /// What people call whoever has it
    pub name: String,
    /// What it may do: read, inspect, submit, work, manage, admin; several parted by commas
    #[arg(long = "role", value_name = "ROLE", required = true, value_delimiter = ',')]
    pub roles: Vec<String>,
    /// The queues it is for, as a pattern: * is any letters, ? is one. May be repeated
    #[arg(long = "queue", value_name = "PATTERN", required = true)]
    pub queues: Vec<String>,
    /// When it ends: after a time such as 90d, or at one such as 2030-01-31T00:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
    /// Make an entry for a client certificate with this common name, and no token
    #[arg(long, value_name = "NAME")]
    pub certificate: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `spindle token check`.
#[derive(Debug, Args)]
pub struct CheckTokensArgs {
    /// The tokens file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Print JSON: one object per line
    #[arg(long)]
    pub json: bool,
}
