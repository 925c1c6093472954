//! How a server's HTTP door is reached.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Where a server's HTTP door is, and who vouches for it.
#[derive(Debug, Args)]
pub struct Reach {
    /// The server's URL, http or https, with the path a proxy puts before it [env: SPINDLE_URL]
    /// [default: http://127.0.0.1:7420]
    #[arg(long, value_name = "URL", global = true)]
    pub url: Option<String>,
    #[command(flatten)]
    pub papers: Papers,
}

/// Who vouches for a server, and who asks.
#[derive(Debug, Args)]
pub struct Papers {
    /// Certificates in PEM: over https the server must be vouched for by one of these, instead of
    /// by a public authority [env: SPINDLE_CA_FILE]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub ca_file: Option<PathBuf>,
    /// A certificate in PEM to show to a server that asks for one; needs `--key` [env: SPINDLE_CERT]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub cert: Option<PathBuf>,
    /// The private key of `--cert` in PEM [env: SPINDLE_KEY]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub key: Option<PathBuf>,
    #[command(flatten)]
    pub who: Who,
}

/// Who asks. There is no flag for the token itself: everyone on the machine can see flags.
#[derive(Debug, Args)]
pub struct Who {
    /// A file with the token that says who you are, which only you may read [env:
    /// SPINDLE_TOKEN_FILE, or SPINDLE_TOKEN with the token itself]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub token_file: Option<PathBuf>,
}
