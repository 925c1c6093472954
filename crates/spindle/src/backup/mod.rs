//! `spindle backup` and `spindle restore`, and `spindle verify` of a backup.
//!
//! - `server`: the segments of a running server, through its API
//! - `shared`: the records of a log that servers share
//! - here: the commands

mod server;
mod shared;

use std::{
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use anyhow::Context;
use serde_json::{Value, json};
use spindle_backup::{
    BackupError, Checked, FolderSource, Manifest, Manner, Source, Taken, back_up, back_up_records,
    check, fill,
};
use spindle_engine::record::checked_parts;
use spindle_log::{OpenError, Opening, disk::RealDisk};

use self::{server::ServerSource, shared::SharedSource};
use crate::{
    cli::{BackupArgs, RestoreArgs, VerifyArgs},
    exit::{Code, Failure},
    output::{Rows, write_line},
    shared_log,
};

/// Takes a backup and says what is in it.
pub fn backup(args: &BackupArgs) -> anyhow::Result<Code> {
    let taken = match &args.source {
        Some(source) => backup_of_segments(args, source)?,
        None => backup_of_records(args)?,
    };
    if taken.begun_anew {
        let message =
            "the log has dropped what follows the backup that was there: all of it was copied anew";
        writeln!(io::stderr(), "{message}")?;
    }
    if taken.renewed > 0 {
        let message = "copies of the backup that was there were damaged or missing, and were made anew: check the disk";
        writeln!(io::stderr(), "{} {message}", taken.renewed)?;
    }
    let more = [
        ("copied", taken.copied_bytes, "copied_bytes"),
        ("dropped", taken.dropped as u64, "dropped_segments"),
        ("renewed", taken.renewed as u64, "renewed_segments"),
    ];
    print(&taken.manifest, args.json, &more)
}

fn backup_of_segments(args: &BackupArgs, from: &str) -> anyhow::Result<Taken> {
    let is_url = from.contains("://");
    let mut source: Box<dyn Source> = if is_url {
        Box::new(ServerSource::of(from, args)?)
    } else {
        Box::new(folder(Path::new(from))?)
    };
    let dest = made(&args.dest)?;
    // The copy rests after each piece, for the sake of a server on the same disk.
    let manner = Manner { rests: is_url, ..manner(args) };
    Ok(back_up(&dest, &mut *source, manner, now(), &mut |_| {})?)
}

fn backup_of_records(args: &BackupArgs) -> anyhow::Result<Taken> {
    let mut source = SharedSource::open(&args.shared)?;
    let dest = made(&args.dest)?;
    Ok(back_up_records(&dest, &mut source, manner(args), now(), &mut |_| {})?)
}

fn manner(args: &BackupArgs) -> Manner {
    Manner { parts_of: checked_parts, rests: false, trusts_kept: args.no_verify }
}

fn now() -> String {
    format!("{:.0}", spindle_client::now())
}

/// Makes a data folder of a backup, or fills a shared log with it.
pub fn restore(args: &RestoreArgs) -> anyhow::Result<Code> {
    let backup = opened(&args.backup)?;
    let manifest = match &args.folder {
        Some(folder) => {
            let folder = Arc::new(made(folder)?);
            spindle_backup::restore(&backup, folder, checked_parts, &mut |_| {})?.manifest
        }
        None => restore_to_log(args, &backup)?,
    };
    print(&manifest, args.json, &[])
}

fn restore_to_log(args: &RestoreArgs, backup: &RealDisk) -> anyhow::Result<Manifest> {
    // The backup is checked before a log is made for it.
    let Checked { manifest, findings } = check(backup, checked_parts)?;
    if let Some(finding) = findings.into_iter().next() {
        let folder = args.backup.display().to_string();
        return Err(
            BackupError::Damaged { folder, file: finding.file, reason: finding.reason }.into()
        );
    }
    let log = shared_log::open(&args.shared, Opening::Restore(manifest.first))?;
    fill(backup, &manifest, &*log, checked_parts, &mut |_| {})?;
    Ok(manifest)
}

/// Reads a backup through and says whether it is sound.
pub fn verify(args: &VerifyArgs, folder: &Path) -> anyhow::Result<Code> {
    if args.repair {
        let message =
            "a backup is not repaired: take a new one, and keep this one until it is there";
        return Err(Failure::with(Code::Usage, message));
    }
    let checked = check(&opened(folder)?, checked_parts)?;
    let mut out = io::stdout().lock();
    let Checked { manifest, findings } = &checked;
    let verdict = if checked.is_sound() { "sound" } else { "damaged" };
    if args.json {
        let mut object = object(manifest);
        object["verdict"] = verdict.into();
        object["sound"] = checked.is_sound().into();
        object["findings"] = findings
            .iter()
            .map(|finding| json!({ "file": finding.file, "reason": finding.reason }))
            .collect();
        write_line(&mut out, object)?;
    } else {
        let mut rows = Rows::new(&["what", "found"]);
        rows.add(["verdict".to_owned(), verdict.to_owned()]);
        rows.add(["folder".to_owned(), folder.display().to_string()]);
        add_rows(&mut rows, manifest);
        for finding in findings {
            rows.add(["damage".to_owned(), format!("{}: {}", finding.file, finding.reason)]);
        }
        if !checked.is_sound() {
            let advice = "take a new backup to another folder; this one is not restored";
            rows.add(["advice".to_owned(), advice.to_owned()]);
        }
        rows.print(&mut out)?;
    }
    Ok(if checked.is_sound() { Code::Ok } else { Code::Error })
}

fn folder(path: &Path) -> anyhow::Result<FolderSource> {
    let disk = opened(path)?;
    FolderSource::open(&disk, checked_parts).map_err(|error| match error {
        OpenError::Locked { .. } => {
            let advice = "back it up by its URL, such as http://127.0.0.1:7420";
            anyhow::anyhow!("a server works on {}: {advice}", path.display())
        }
        other => other.into(),
    })
}

fn opened(path: &Path) -> anyhow::Result<RealDisk> {
    RealDisk::open(path).with_context(|| format!("cannot read the folder {}", path.display()))
}

fn made(path: &Path) -> anyhow::Result<RealDisk> {
    let message = || format!("cannot write to the folder {}", path.display());
    RealDisk::create_or_open(path).with_context(message)
}

/// Prints what is in a backup, and numbers beside it: their rows, and their fields.
fn print(
    manifest: &Manifest,
    as_json: bool,
    more: &[(&str, u64, &'static str)],
) -> anyhow::Result<Code> {
    let mut out = io::stdout().lock();
    if as_json {
        let mut object = object(manifest);
        for (_, number, field) in more {
            object[*field] = (*number).into();
        }
        write_line(&mut out, object)?;
        return Ok(Code::Ok);
    }
    let mut rows = Rows::new(&["what", "found"]);
    add_rows(&mut rows, manifest);
    for (name, number, _) in more {
        rows.add([(*name).to_owned(), number.to_string()]);
    }
    rows.print(&mut out)?;
    Ok(Code::Ok)
}

fn add_rows(rows: &mut Rows, manifest: &Manifest) {
    let mut row = |name: &str, text: String| rows.add([name.to_owned(), text]);
    row("taken", manifest.taken_at.clone());
    row("first", manifest.first.to_string());
    row("next", manifest.end.to_string());
    row("segments", manifest.segments.len().to_string());
    row("bytes", manifest.bytes().to_string());
    let damaged = damaged(manifest);
    if damaged > 0 {
        let text = "records with a damaged payload or result, as they were on the server";
        row("damaged-bytes", format!("{damaged} {text}"));
    }
}

fn damaged(manifest: &Manifest) -> u64 {
    manifest.segments.iter().map(|kept| kept.damaged_records).sum()
}

fn object(manifest: &Manifest) -> Value {
    json!({
        "taken_at": manifest.taken_at,
        "first": manifest.first.0,
        "next": manifest.end.0,
        "segments": manifest.segments.len(),
        "bytes": manifest.bytes(),
        "damaged_records": damaged(manifest),
    })
}
