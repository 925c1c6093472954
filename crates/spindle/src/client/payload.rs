//! What a job is to carry, from the command line.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use anyhow::Context;
use bytes::Bytes;
use spindle_workq::wire::Limits;

use crate::exit::{Code, Failure};

/// The longest payload and the longest result that a Workq door takes.
pub fn block_bytes_max() -> usize {
    let limits = Limits::default();
    limits.payload_bytes_max.min(limits.result_bytes_max)
}

/// Reads a payload argument: a text, `-` for standard input, `@FILE` for a file. It has at most
/// `bytes_max`.
pub fn read(argument: &OsString, bytes_max: usize) -> anyhow::Result<Bytes> {
    match argument.as_bytes() {
        b"-" => all(io::stdin().lock(), bytes_max).context("standard input"),
        [b'@', path @ ..] => {
            let path = Path::new(OsStr::from_bytes(path));
            let message = || format!("cannot read the payload from {}", path.display());
            all(File::open(path).with_context(message)?, bytes_max).with_context(message)
        }
        text => fit(Bytes::copy_from_slice(text), bytes_max),
    }
}

/// Reads at most one byte more than a job can carry, so that an endless input is refused too.
fn all(input: impl Read, bytes_max: usize) -> anyhow::Result<Bytes> {
    let mut payload = Vec::new();
    input.take(bytes_max as u64 + 1).read_to_end(&mut payload)?;
    fit(payload.into(), bytes_max)
}

/// Refuses what a job cannot carry.
pub fn fit(payload: Bytes, bytes_max: usize) -> anyhow::Result<Bytes> {
    if payload.len() <= bytes_max {
        return Ok(payload);
    }
    let message = format!(
        "the payload is larger than {bytes_max} bytes, the most a job carries; put it into a file \
         and let the payload name it"
    );
    Err(Failure::with(Code::Error, message))
}
