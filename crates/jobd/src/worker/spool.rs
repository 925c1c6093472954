//! Results that the table could not take before the worker had to end, kept for its next start.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::table::Finish;

/// An end that was not written: one line of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spooled {
    #[serde(flatten)]
    pub(super) finish: Finish,
    /// What a table that leases needs besides the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) receipt: Option<String>,
}

/// Writes the results and syncs them.
pub(super) fn save(path: &Path, spooled: &[Spooled]) -> io::Result<()> {
    let mut text = Vec::new();
    for line in spooled {
        serde_json::to_writer(&mut text, line)?;
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
pub(super) fn load(path: &Path) -> io::Result<Vec<Spooled>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::RowId;

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
        let spooled = |id, receipt: Option<&str>| {
            let receipt = receipt.map(str::to_owned);
            Spooled { finish: finish(id), receipt }
        };
        let all = [spooled(1, None), spooled(2, Some("token"))];
        save(&path, &all).unwrap();
        assert_eq!(load(&path).unwrap(), all);
        let first = fs::read_to_string(&path).unwrap().lines().next().map(str::to_owned);
        let fields = r#"{"id":1,"finished_s":5,"success":false,"code":null,"signal":"SIGKILL","#;
        let outputs = r#""stdout":"a\nb","stderr":"é"}"#;
        assert_eq!(first, Some(format!("{fields}{outputs}")), "an earlier worker reads it too");
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(bytes.len() - 5);
        fs::write(&path, bytes).unwrap();
        assert_eq!(load(&path).unwrap(), [spooled(1, None)]);
    }
}
