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

/// Reads a payload argument: a text, `-` for standard input, `@FILE` for a file.
pub fn read(argument: &OsString) -> anyhow::Result<Bytes> {
    match argument.as_bytes() {
        b"-" => all(io::stdin().lock()).context("standard input"),
        [b'@', path @ ..] => {
            let path = Path::new(OsStr::from_bytes(path));
            let told = || format!("cannot read the payload from {}", path.display());
            all(File::open(path).with_context(told)?).with_context(told)
        }
        text => fit(Bytes::copy_from_slice(text)),
    }
}

/// Reads at most one byte more than a job can carry, so that an endless input is refused too.
fn all(input: impl Read) -> anyhow::Result<Bytes> {
    let mut payload = Vec::new();
    input.take(block_bytes_max() as u64 + 1).read_to_end(&mut payload)?;
    fit(payload.into())
}

/// Refuses what a job cannot carry.
pub fn fit(payload: Bytes) -> anyhow::Result<Bytes> {
    if payload.len() <= block_bytes_max() {
        return Ok(payload);
    }
    let told = format!(
        "the payload is larger than {} bytes, the most a job carries; put it into a file and \
         let the payload name it",
        block_bytes_max()
    );
    Err(Failure::with(Code::Error, told))
}
