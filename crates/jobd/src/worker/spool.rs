//! Results that the table could not take before the worker had to end, kept for its next start.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::table::{Finish, RowId};

/// One line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    id: i64,
    finished_s: i64,
    success: bool,
    code: Option<u8>,
    signal: Option<String>,
    stdout: String,
    stderr: String,
    /// What a table that leases needs beside the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
}

/// An end, and the receipt of its lease if its table is of that kind.
pub(super) type Kept = (Finish, Option<String>);

/// Writes the results and syncs them.
pub(super) fn save<'a>(
    path: &Path,
    finishes: impl IntoIterator<Item = &'a Kept>,
) -> io::Result<()> {
    let mut text = Vec::new();
    for (finish, receipt) in finishes {
        let line = Line {
            id: finish.id.0,
            finished_s: finish.finished_s,
            success: finish.success,
            code: finish.code,
            signal: finish.signal.clone(),
            stdout: finish.stdout.clone(),
            stderr: finish.stderr.clone(),
            receipt: receipt.clone(),
        };
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    let mut file = File::create(path)?;
    file.write_all(&text)?;
    file.sync_all()
}

/// Forgets results that have been written since.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The results of an earlier end. A last line that was not written whole is left out.
pub(super) fn load(path: &Path) -> io::Result<Vec<Kept>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let kept = |line: Line| {
        let finish = Finish {
            id: RowId(line.id),
            finished_s: line.finished_s,
            success: line.success,
            code: line.code,
            signal: line.signal,
            stdout: line.stdout,
            stderr: line.stderr,
        };
        (finish, line.receipt)
    };
    Ok(lines.map(kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back_as_they_were_saved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.results");
        assert_eq!(load(&path).unwrap(), []);
        let finish = |id| Finish {
            id: RowId(id),
            finished_s: 5,
            success: false,
            code: None,
            signal: Some("SIGKILL".to_owned()),
            stdout: "a\nb".to_owned(),
            stderr: "é".to_owned(),
        };
        let finishes = [(finish(1), None), (finish(2), Some("token".to_owned()))];
        save(&path, &finishes).unwrap();
        assert_eq!(load(&path).unwrap(), finishes);
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(bytes.len() - 5);
        fs::write(&path, bytes).unwrap();
        assert_eq!(load(&path).unwrap(), [(finish(1), None)]);
    }
}
