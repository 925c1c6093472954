//! `spindle import`: takes in what `spindle export` has written.
//!
//! Jobs go in batches. After each one that the server has on disk, the place in the file is noted
//! beside it, so that an import that was ended goes on there. The batch whose answer was lost is sent
//! again: the server knows its jobs by where they come from.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    batch::{self, Answer},
    export::{Kind, VERSION, place_of},
    native::Native,
    session::AskError,
    web::{ApiRequest, encoded},
};
use crate::{
    cli::ImportArgs,
    exit::{Code, Failure},
    output::print_counts,
};

const BATCH_MAX: usize = 1_000;
/// The most bytes of a job: a request's body has at most 16 MiB, and this around the one job in it.
const JOB_BYTES_MAX: usize = 16 * 1024 * 1024 - "{\"jobs\":[]}".len();
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// A line is never longer: the largest payload, in base64, with room to spare.
const LINE_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Runs `spindle import`.
pub fn import(args: &ImportArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let mut import = Import {
        native,
        skip_refused: args.skip_refused,
        notes: None,
        done: Done::default(),
        lines: Vec::new(),
        lines_bytes: 0,
    };
    if args.file.as_os_str() == "-" {
        import.read(&mut io::stdin().lock())?;
    } else {
        let message = || format!("cannot read {}", args.file.display());
        let mut file = File::open(&args.file).with_context(message)?;
        let again = file.try_clone().with_context(message)?;
        let notes = Notes::beside(&args.file, again, import.native.place());
        import.done = notes.read()?;
        if !import.done.ended {
            notes.try_to_write(&args.file)?;
        }
        file.seek(SeekFrom::Start(import.done.offset))?;
        let mut file = BufReader::new(file);
        import.notes = Some(notes);
        import.read(&mut file)?;
    }
    import.done.print(args.native.json)?;
    Ok(if import.done.refused > 0 { Code::Error } else { Code::Ok })
}

/// What was done so far.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Done {
    /// The server it was done at.
    url: String,
    /// How many bytes of the file.
    offset: u64,
    /// What these bytes are known by. Earlier releases did not note it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<String>,
    /// That is all of it.
    ended: bool,
    /// Jobs that were made.
    imported: u64,
    /// Jobs that were there already.
    existing: u64,
    /// Jobs that are done or dead.
    finished: u64,
    /// Jobs whose time is over.
    expired: u64,
    /// Jobs that the server refused.
    refused: u64,
    /// Queues that were set.
    queues: u64,
    /// Constraints that were put.
    constraints: u64,
}

impl Done {
    fn jobs(&self) -> u64 {
        self.imported + self.existing + self.finished + self.expired + self.refused
    }

    fn print(&self, as_json: bool) -> io::Result<()> {
        let counts = [
            ("imported", self.imported),
            ("existing", self.existing),
            ("finished", self.finished),
            ("expired", self.expired),
            ("refused", self.refused),
            ("queues", self.queues),
            ("constraints", self.constraints),
        ];
        print_counts(&counts, as_json)
    }
}

/// The file that says how far an import came.
struct Notes {
    path: PathBuf,
    /// The file that is imported.
    file: File,
    url: String,
}

/// How many bytes at the beginning of a file, and before the place that was noted, are looked at again.
const KNOWN_BY_BYTES: u64 = 4096;

impl Notes {
    fn beside(path: &Path, file: File, url: String) -> Self {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".imported");
        Self { path: path.with_file_name(name), file, url }
    }

    /// What the first bytes of the file are known by; `None` if it has fewer.
    fn sum_of(&self, offset: u64) -> io::Result<Option<String>> {
        if self.file.metadata()?.len() < offset {
            return Ok(None);
        }
        let len = offset.min(KNOWN_BY_BYTES);
        let mut sum = Sha256::new();
        for begin in [0, offset - len] {
            let mut bytes = vec![0; len as usize];
            self.file.read_exact_at(&mut bytes, begin)?;
            sum.update(&bytes);
        }
        Ok(Some(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Notes of a file that cannot be written are found out before anything is imported.
    fn try_to_write(&self, file: &Path) -> anyhow::Result<()> {
        let new = self.new_path();
        let tried = File::create(&new).and_then(|_| fs::remove_file(&new));
        tried.map_err(|error| {
            let (path, file) = (self.path.display(), file.display());
            anyhow!(
                "cannot write {path}: {error}; how far the import came is noted there. Copy the file to a folder that \
                 can be written to, or import it without notes: spindle import - <{file}"
            )
        })
    }

    fn new_path(&self) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        self.path.with_file_name(name)
    }

    fn read(&self) -> anyhow::Result<Done> {
        let text = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Done { url: self.url.clone(), ..Done::default() });
            }
            other => other.with_context(|| format!("cannot read {}", self.path.display()))?,
        };
        let path = self.path.display();
        let done: Done = serde_json::from_slice(&text)
            .map_err(|error| anyhow!("{path}: {error}; remove it to import from the beginning"))?;
        if done.url != self.url {
            let message = format!(
                "{path} says that the file was imported to {}: copy the file to import it to {}, \
                 or remove {path}",
                done.url, self.url
            );
            return Err(Failure::with(Code::Usage, message));
        }
        if done.sum.is_some() && self.sum_of(done.offset)? != done.sum {
            let message = format!(
                "{path} is about another file that had this name, or this one was changed: remove {path} to import \
                 the file from its beginning"
            );
            return Err(Failure::with(Code::Usage, message));
        }
        Ok(done)
    }

    fn write(&self, done: &Done) -> anyhow::Result<()> {
        let done = Done { sum: self.sum_of(done.offset)?, ..done.clone() };
        let new = self.new_path();
        let text = serde_json::to_vec(&done)?;
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        });
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

struct Import {
    native: Native,
    skip_refused: bool,
    notes: Option<Notes>,
    done: Done,
    /// Jobs that are still to be sent.
    lines: Vec<String>,
    lines_bytes: usize,
}

impl Import {
    /// Reads lines to their end and does what they say.
    fn read(&mut self, input: &mut impl BufRead) -> anyhow::Result<()> {
        let mut offset = self.done.offset;
        let mut is_first = offset == 0;
        while let Some(line) = read_line(input)? {
            let kind: Kind<'_> = serde_json::from_str(&line).map_err(|error| {
                wrong(format!("the line at byte {offset} is none of an export: {error}"))
            })?;
            if is_first && kind.r#type != "export" {
                return Err(wrong("the first line is none of an export".to_owned()));
            }
            is_first = false;
            let (is_job, id) = (kind.r#type == "job", kind.id);
            let text = line.trim_end();
            let is_end = kind.r#type == "end";
            let is_too_large = is_job && text.len() > JOB_BYTES_MAX;
            if is_end || is_too_large || (is_job && self.is_full_with(text)) {
                self.send(offset)?;
            }
            offset += line.len() as u64;
            if is_too_large {
                let bytes = text.len();
                let why = format!(
                    "job {id}: its line has {bytes} bytes, a request takes {JOB_BYTES_MAX}; a backup carries it"
                );
                self.refuse(&[why])?;
                self.done.refused += 1;
                self.note(offset)?;
                continue;
            }
            match &*kind.r#type {
                "export" => check_version(text)?,
                "constraint" => self.constraint(text)?,
                "queue" => self.queue(text)?,
                "end" => self.end(text, offset)?,
                "job" => {
                    self.lines_bytes += text.len();
                    self.lines.push(text.to_owned());
                }
                other => {
                    return Err(wrong(format!(
                        "a line is a `{other}`, which is unknown (job {id})"
                    )));
                }
            }
        }
        self.send(offset)?;
        if self.done.ended {
            return Ok(());
        }
        Err(anyhow!(
            "the file has no end: it was cut off, or its export was; what it has is imported. Run the \
             export again to its end, and then this import"
        ))
    }

    /// The last line says how many jobs there are.
    fn end(&mut self, line: &str, offset: u64) -> anyhow::Result<()> {
        let (jobs, came) =
            (serde_json::from_str::<Value>(line)?["jobs"].as_u64(), self.done.jobs());
        if jobs != Some(came) {
            let jobs = jobs.unwrap_or_default();
            return Err(anyhow!(
                "the file should have {jobs} jobs, and {came} came: it is not as it was written"
            ));
        }
        self.done.ended = true;
        self.note(offset)
    }

    /// Notes how far it came.
    fn note(&mut self, offset: u64) -> anyhow::Result<()> {
        self.done.offset = offset;
        self.notes.as_ref().map_or(Ok(()), |notes| notes.write(&self.done))
    }

    fn is_full_with(&self, line: &str) -> bool {
        let count = self.lines.len();
        count == BATCH_MAX || (count > 0 && self.lines_bytes + line.len() > BATCH_BYTES)
    }

    /// Sends the jobs that were read, which end at `offset`, until all of them are answered.
    fn send(&mut self, offset: u64) -> anyhow::Result<()> {
        if offset == self.done.offset {
            return Ok(());
        }
        let answers = batch::send(&self.native, "/api/v1/jobs/import", &self.lines)?;
        self.count(&answers)?;
        self.lines.clear();
        self.lines_bytes = 0;
        self.note(offset)
    }

    fn count(&mut self, answers: &[Answer]) -> anyhow::Result<()> {
        let mut done = self.done.clone();
        let mut refused = Vec::new();
        for (answer, line) in answers.iter().zip(&self.lines) {
            match answer {
                Answer::Here { existing: false } => done.imported += 1,
                Answer::Here { existing: true } => done.existing += 1,
                Answer::Skipped { skipped } if skipped == "expired" => done.expired += 1,
                Answer::Skipped { .. } => done.finished += 1,
                Answer::Refused { problem } => {
                    let id = serde_json::from_str::<Kind<'_>>(line).map_or(0, |kind| kind.id);
                    refused.push(format!("job {id}: the server refused: {}", problem.detail));
                    done.refused += 1;
                }
            }
        }
        self.refuse(&refused)?;
        self.done = done;
        Ok(())
    }

    /// Says which jobs were refused, and ends the import unless they may be passed over.
    fn refuse(&self, refused: &[String]) -> anyhow::Result<()> {
        for line in refused {
            eprintln!("{line}");
        }
        if refused.is_empty() || self.skip_refused {
            return Ok(());
        }
        Err(anyhow!(
            "{} jobs were refused; fix what is listed above and run it again: it goes on with them, or passes over \
             them with --skip-refused",
            refused.len()
        ))
    }

    /// Puts a constraint, unless there is one of that name.
    fn constraint(&mut self, line: &str) -> anyhow::Result<()> {
        let line: Value = serde_json::from_str(line)?;
        let name =
            line["name"].as_str().ok_or_else(|| wrong("a constraint has no name".to_owned()))?;
        let path = format!("/api/v1/constraints/{}", encoded(name));
        if self.put_if_new(&path, &line["constraint"], &format!("constraint {name}"))? {
            self.done.constraints += 1;
        }
        Ok(())
    }

    /// Sets a queue, unless there is one of that name.
    fn queue(&mut self, line: &str) -> anyhow::Result<()> {
        let line: Value = serde_json::from_str(line)?;
        let place = place_of(&line).ok_or_else(|| wrong("a queue has no name".to_owned()))?;
        let path = format!("/api/v1/queues/{place}");
        let (at, settings) = (format!("{path}/settings"), &line["settings"]);
        let is_new = self.put_if_new(&at, settings, "queue")?;
        self.done.queues += u64::from(is_new);
        if line["paused"] != true {
            return Ok(());
        }
        // An import that was ended may have set it, and not paused it yet.
        if is_new || self.native.ask::<Value>(ApiRequest::get(&at), "queue")? == *settings {
            let path = format!("{path}/pause");
            self.native.answer(ApiRequest::post(&path).with(&json!({})), "queue")?;
        }
        Ok(())
    }

    /// Puts it, unless there is one already, which stays as it is. Returns whether it was put.
    fn put_if_new(&self, path: &str, body: &Value, about: &str) -> anyhow::Result<bool> {
        let mut asking = ApiRequest::of(spindle_client::http::Method::PUT, path).with(body);
        asking.headers.push(("If-None-Match", "*".to_owned()));
        match self.native.http().answer(asking) {
            Ok(_) => Ok(true),
            Err(AskError::Refused { code: Some(code), .. }) if code == "revision_mismatch" => {
                Ok(false)
            }
            Err(error) => Err(self.native.explain(error, about)),
        }
    }
}

fn check_version(line: &str) -> anyhow::Result<()> {
    let head: Value = serde_json::from_str(line)?;
    match head["version"].as_u64() {
        Some(version) if version <= VERSION => Ok(()),
        _ => Err(wrong("a newer release wrote the file: use that one".to_owned())),
    }
}

fn wrong(message: String) -> anyhow::Error {
    Failure::with(Code::Usage, message)
}

/// The next line, its end included.
fn read_line(input: &mut impl BufRead) -> anyhow::Result<Option<String>> {
    let mut line = Vec::new();
    let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if !line.ends_with(b"\n") {
        let why = if read as u64 == LINE_BYTES_MAX { "is too long" } else { "is cut off" };
        return Err(wrong(format!("the last line that was read {why}")));
    }
    String::from_utf8(line).map(Some).map_err(|_| wrong("a line is not UTF-8".to_owned()))
}
