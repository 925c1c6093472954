//! `spindle export`: all jobs, queues and constraints of a server as lines of JSON.
//!
//! Jobs come by number, page by page. What was written of a file that was begun stays: the export
//! goes on behind its last whole line.

use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use anyhow::Context;
use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    native::Native,
    web::{ApiRequest, encoded},
};
use crate::{
    cli::ExportArgs,
    exit::{Code, Failure},
    output::write_json,
};

/// The version of the lines. `import` reads its own and older ones.
pub const VERSION: u64 = 1;

/// Runs `spindle export`.
pub fn export(args: &ExportArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    if args.file.as_os_str() == "-" {
        let begun = Begun { next: args.from, has_head: args.from > 0, ..Begun::default() };
        let mut out = BufWriter::new(io::stdout().lock());
        write_all(&native, args, begun, &mut out)?;
        out.flush()?;
        return Ok(Code::Ok);
    }
    if args.from > 0 {
        let message = "--from is for standard output: a file says itself how far it goes";
        return Err(Failure::with(Code::Usage, message));
    }
    let message = || format!("cannot write to {}", args.file.display());
    // What is there already is read: a pipe or a terminal would never end.
    if fs::metadata(&args.file).is_ok_and(|found| !found.is_file()) {
        let path = args.file.display();
        let message = format!(
            "{path} is no regular file: write to standard output, spindle export - >{path}"
        );
        return Err(Failure::with(Code::Usage, message));
    }
    // Jobs may hold secrets.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&args.file).with_context(message)?;
    let begun = read_begun(&mut file, &args.file, args.all)?;
    begun.refuse_other_server(&native, &args.file)?;
    if begun.end_of_whole < file.metadata().with_context(message)?.len() {
        file.set_len(begun.end_of_whole).with_context(message)?;
    }
    file.seek(SeekFrom::Start(begun.end_of_whole)).with_context(message)?;
    // The file may have been there, open to others.
    file.set_permissions(Permissions::from_mode(0o600)).with_context(message)?;
    let mut out = BufWriter::new(file);
    let jobs = write_all(&native, args, begun, &mut out)?;
    out.flush().with_context(message)?;
    out.get_ref().sync_all().with_context(message)?;
    if args.native.json {
        let object = json!({ "file": args.file.display().to_string(), "jobs": jobs });
        write_json(&mut io::stdout().lock(), &object)?;
    }
    Ok(Code::Ok)
}

/// What a file has already.
#[derive(Default)]
struct Begun {
    jobs: u64,
    /// The number of the next job that can be missing.
    next: u64,
    /// It has everything that comes before the jobs.
    has_head: bool,
    /// How many bytes of it stay.
    end_of_whole: u64,
    /// Where its server was.
    url: Option<String>,
    /// Its first job and its last: their numbers, and when they were submitted.
    ends: Option<[(u64, String); 2]>,
}

impl Begun {
    /// Refuses to go on in the file of another server. One that has a job of the file is the same, and one whose job of
    /// that number was submitted at another time is not. If it has none of them any more, the URL decides.
    fn refuse_other_server(&self, native: &Native, path: &Path) -> anyhow::Result<()> {
        let other = |found: &str| {
            let message = format!(
                "{} was begun with another server ({found}): name another file",
                path.display()
            );
            Err(Failure::with(Code::Usage, message))
        };
        for (id, created_at) in self.ends.iter().flatten() {
            let asked = format!("/api/v1/jobs/export?finished=true&limit=1&cursor={id}");
            let page: Page = native.ask(ApiRequest::get(&asked), "jobs")?;
            let Some(job) = page.jobs.first() else { continue };
            let job: Kind<'_> = serde_json::from_str(job.get())?;
            if job.id == *id && job.created_at == *created_at {
                return Ok(());
            }
            if job.id == *id {
                return other(&format!("job {id} is another one there"));
            }
        }
        match &self.url {
            Some(url) if *url != native.place() => other(url),
            _ => Ok(()),
        }
    }
}

/// The fields that tell what kind of line it is.
#[derive(Deserialize)]
pub struct Kind<'a> {
    /// What it is.
    #[serde(borrow)]
    pub r#type: Cow<'a, str>,
    /// Of a job: its number.
    #[serde(default)]
    pub id: u64,
    /// Of a job: when it was submitted.
    #[serde(default, borrow)]
    created_at: Cow<'a, str>,
    /// Of the first line: where the server was. Earlier releases did not write it.
    #[serde(default, borrow)]
    url: Option<Cow<'a, str>>,
    /// Of the first line: whether done and dead jobs are meant.
    #[serde(default)]
    finished: bool,
}

/// Reads a file that was begun, up to its last whole line.
fn read_begun(file: &mut File, path: &Path, all: bool) -> anyhow::Result<Begun> {
    let mut begun = Begun::default();
    let mut reader = BufReader::new(&mut *file);
    let (mut line, mut end) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        if read == 0 || !line.ends_with(b"\n") {
            break;
        }
        let kind: Kind<'_> = serde_json::from_slice(&line).map_err(|_| foreign(path))?;
        match (&*kind.r#type, end) {
            ("export", 0) if kind.finished == all => {
                begun.url = kind.url.map(Cow::into_owned);
            }
            ("export", 0) => {
                let message = format!("{} was begun with another --all", path.display());
                return Err(Failure::with(Code::Usage, message));
            }
            (_, 0) => return Err(foreign(path)),
            ("job", _) => {
                begun.jobs += 1;
                begun.next = begun.next.max(kind.id + 1);
                begun.has_head = true;
                let job = (kind.id, kind.created_at.into_owned());
                let first = begun.ends.take().map_or_else(|| job.clone(), |[first, _]| first);
                begun.ends = Some([first, job]);
            }
            ("end", _) => {
                let message = format!("{} is whole already: name another file", path.display());
                return Err(Failure::with(Code::Usage, message));
            }
            _ => {}
        }
        end += read as u64;
    }
    if end == 0 && !line.starts_with(HEAD) && !HEAD.starts_with(&line) {
        return Err(foreign(path));
    }
    // A file that does not reach the jobs is begun anew: the part before them is small.
    begun.end_of_whole = if begun.has_head { end } else { 0 };
    Ok(begun)
}

fn foreign(path: &Path) -> anyhow::Error {
    let message =
        format!("{} is no file that `spindle export` began: name another", path.display());
    Failure::with(Code::Usage, message)
}

/// Writes what is missing, and how many jobs there are then.
fn write_all(
    native: &Native,
    args: &ExportArgs,
    begun: Begun,
    out: &mut impl Write,
) -> anyhow::Result<u64> {
    if !begun.has_head {
        write_head(native, args, out)?;
    }
    let mut jobs = begun.jobs;
    let finished = args.all;
    let mut cursor = begun.next.to_string();
    loop {
        let path = format!("/api/v1/jobs/export?finished={finished}&cursor={cursor}");
        let page: Page = native.ask(ApiRequest::get(&path), "jobs")?;
        for job in &page.jobs {
            writeln!(out, "{}", job.get())?;
            jobs += 1;
        }
        // A page that is written stays, whatever becomes of the next.
        out.flush()?;
        let Some(next) = page.next_cursor else { break };
        cursor = next;
    }
    writeln!(out, "{}", json!({ "type": "end", "jobs": jobs }))?;
    Ok(jobs)
}

/// The first line.
#[derive(Serialize)]
struct Head<'a> {
    r#type: &'static str,
    version: u64,
    server: &'a str,
    url: String,
    taken_at: String,
    finished: bool,
}

/// How the first line begins, by which it is recognized even if it was cut off.
const HEAD: &[u8] = b"{\"type\":\"export\"";

#[derive(Deserialize)]
struct Page {
    jobs: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

/// Writes what comes before the jobs: constraints and queues first, so that jobs find them there.
fn write_head(native: &Native, args: &ExportArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let server: Value = native.ask(ApiRequest::get("/api/v1/server"), "server")?;
    let head = Head {
        r#type: "export",
        version: VERSION,
        server: server["version"].as_str().unwrap_or_default(),
        url: native.place(),
        taken_at: format!("{:.0}", spindle_client::now()),
        finished: args.all,
    };
    write_json(out, &head)?;
    for constraint in native.list("/api/v1/constraints", "constraints")? {
        writeln!(out, "{}", constraint_line(constraint))?;
    }
    for queue in native.list("/api/v1/queues", "queues")? {
        writeln!(out, "{}", queue_line(native, &queue)?)?;
    }
    out.flush()?;
    Ok(())
}

/// A constraint as a request puts it.
fn constraint_line(constraint: Value) -> Value {
    const PUT: [&str; 7] =
        ["queue", "queue_glob", "where", "per", "rate", "running_max", "per_shard"];
    let mut line = Map::new();
    line.insert("type".to_owned(), "constraint".into());
    line.insert("name".to_owned(), constraint["name"].clone());
    let fields = PUT.iter().filter_map(|name| Some((*name, constraint.get(name)?.clone())));
    let fields: Map<String, Value> = fields.map(|(name, it)| (name.to_owned(), it)).collect();
    line.insert("constraint".to_owned(), fields.into());
    line.into()
}

fn queue_line(native: &Native, queue: &Value) -> anyhow::Result<Value> {
    let place = place_of(queue).context("the server lists a queue without a name")?;
    let path = format!("/api/v1/queues/{place}/settings");
    let settings: Value = native.ask(ApiRequest::get(&path), "queue")?;
    let mut line = json!({ "type": "queue", "paused": queue["paused"], "settings": settings });
    for name in ["name", "name_base64"] {
        if let Some(text) = queue.get(name) {
            line[name] = text.clone();
        }
    }
    Ok(line)
}

/// A queue's name as it stands in a path.
pub fn place_of(queue: &Value) -> Option<String> {
    if let Some(name) = queue.get("name").and_then(Value::as_str) {
        return Some(encoded(name));
    }
    let name = BASE64_STANDARD.decode(queue.get("name_base64")?.as_str()?).ok()?;
    Some(percent_encode(&name, NON_ALPHANUMERIC).to_string())
}
