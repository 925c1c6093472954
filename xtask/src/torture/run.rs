//! One mode, from its set-up to its verdict.

use std::path::Path;

use anyhow::Result;

use super::chaos;
use super::cluster;
use super::cycles::Torture;
use super::full::{self, Disk};
use super::load::Books;
use super::mode::{Mode, Options};
use super::server::{Power, Setup};

/// Runs one mode; the line it returns says what was tried.
pub fn run(mode: Mode, options: &Options) -> Result<String> {
    let root = tempfile::Builder::new().prefix("spindle-torture-").tempdir()?;
    let (outcome, disk) = match mode {
        Mode::Cluster => (cluster::torture(options, root.path()), None),
        _ => of_one_server(mode, options, root.path())?,
    };
    match outcome {
        Ok(line) => {
            // The disk goes before the folder that it is mounted in.
            drop(disk);
            Ok(line)
        }
        Err(why) => {
            // What is left on the disk is evidence.
            let kept = root.keep();
            if let Some(disk) = disk {
                disk.keep();
            }
            let (mode, seed) = (mode.name(), options.seed);
            Err(why.context(format!("{mode}, seed {seed}, files in {}", kept.display())))
        }
    }
}

/// A mode that has one server, with all of its files in `root`; and the disk, if it has one of its own.
fn of_one_server(
    mode: Mode,
    options: &Options,
    root: &Path,
) -> Result<(Result<String>, Option<Disk>)> {
    let power = match mode {
        Mode::Kill | Mode::Full | Mode::Doors | Mode::Cluster => Power::Stays,
        Mode::Power | Mode::PowerOs | Mode::Broken | Mode::Chaos => {
            Power::IsCut { library: options.library.clone() }
        }
    };
    let disk = if mode == Mode::Full { Some(Disk::mount(root.join("disk"))?) } else { None };
    let setup = Setup {
        program: options.program.clone(),
        sync: if mode == Mode::PowerOs { "os" } else { "always" },
        power,
        segment_size: if mode == Mode::Full { full::SEGMENT_SIZE } else { "256KiB" },
        data: disk.as_ref().map_or(root, Disk::folder).join("data"),
        root: root.to_path_buf(),
        all_doors: matches!(mode, Mode::Doors | Mode::Chaos),
        descriptors: (mode == Mode::Chaos).then_some(chaos::DESCRIPTORS),
        papers: None,
        durable_leases: false,
    };
    let torture = Torture { mode, options, setup, books: Books::new() };
    let outcome = match (mode, &disk) {
        (Mode::PowerOs, _) => torture.lose_something(),
        (Mode::Doors, _) => torture.through_every_door(),
        (Mode::Chaos, _) => torture.in_chaos(),
        (_, Some(disk)) => torture.fill_the_disk(disk),
        (_, None) => torture.keep_everything(),
    };
    Ok((outcome, disk))
}
